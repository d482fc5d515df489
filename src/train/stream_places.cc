#include "train/stream_places.h"

#include <charconv>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/text.h"
#include "config/codes.h"
#include "train/gather_texts.h"

namespace quintet::train {
namespace {

// Calls use(set, number of the part, stream) for every stream.
template <class F>
void each_stream(const RunData& data, const F& use) {
  const data::Mixture& mixture = data.train.mixture();
  for (int64_t s = 0; s < mixture.sets(); ++s) {
    const data::MixtureSet::Streams& streams = mixture.set(s).streams();
    for (size_t p = 0; p < streams.size(); ++p) use(s, static_cast<int64_t>(p), *streams[p]);
  }
}

struct StreamPlace {
  int64_t set = 0, part = 0;
  data::StreamCursor cursor;
};

StreamPlace parse_place(const std::string& text) {
  StreamPlace place;
  const char* const end = text.data() + text.size();
  const auto set = std::from_chars(text.data(), end, place.set);
  const bool first = set.ec == std::errc() && set.ptr != end && *set.ptr == ' ';
  const auto part = first ? std::from_chars(set.ptr + 1, end, place.part) : set;
  if (!first || part.ec != std::errc() || part.ptr == end || place.set < 0 || place.part < 0)
    base::fail_user("'{}' is not the place of a data stream", base::printable(text));
  place.cursor = data::parse_cursor(std::string(part.ptr + 1, end));
  return place;
}

}  // namespace

std::vector<std::string> stream_places(const RunData& data, int64_t sequences) {
  std::vector<std::string> places;
  const data::Mixture& mixture = data.train.mixture();
  each_stream(data, [&](int64_t set, int64_t part, const data::SampleStream& stream) {
    const int64_t taken = mixture.set(set).taken_of_stream(part, mixture.taken(set, sequences));
    places.push_back(fmt::format("{} {} {}", set, part, data::to_text(stream.cursor(taken))));
  });
  return places;
}

void restore_places(const RunData& data, const std::vector<std::string>& places) {
  const data::Mixture& mixture = data.train.mixture();
  for (const std::string& text : places) {
    const StreamPlace place = parse_place(text);
    if (place.set >= mixture.sets() ||
        place.part >= static_cast<int64_t>(mixture.set(place.set).streams().size()))
      base::fail_user("'{}' is the place of a stream that the data do not have", base::printable(text));
    mixture.set(place.set).streams()[static_cast<size_t>(place.part)]->add_cursor(place.cursor);
  }
}

std::vector<std::string> furthest_places(const std::vector<std::string>& places) {
  std::map<std::pair<int64_t, int64_t>, StreamPlace> furthest;
  for (const std::string& text : places) {
    const StreamPlace place = parse_place(text);
    const auto [found, is_new] = furthest.try_emplace({place.set, place.part}, place);
    if (!is_new && place.cursor.window > found->second.cursor.window) found->second = place;
  }
  std::vector<std::string> out;
  for (const auto& [key, place] : furthest)
    out.push_back(fmt::format("{} {} {}", place.set, place.part, data::to_text(place.cursor)));
  return out;
}

void open_streams(const RunData& data, int64_t sequences) {
  const data::Mixture& mixture = data.train.mixture();
  for (int64_t s = 0; s < mixture.sets(); ++s)
    if (mixture.set(s).is_streamed())
      mixture.set(s).find(mixture.set(s).at(mixture.taken(s, sequences))->sample);
}

std::string stream_damage(const RunData& data) {
  int64_t count = 0;
  std::string first;
  each_stream(data, [&](int64_t, int64_t, const data::SampleStream& stream) {
    const auto [records, text] = stream.damage();
    count += records;
    if (first.empty()) first = text;
  });
  return count == 0 ? ""
                    : fmt::format("{} damaged record{} left out, the first: {}", base::thousands(count),
                                  count == 1 ? "" : "s", first);
}

std::vector<std::string> gather_places(comm::World& world, const RunData& data, int64_t sequences) {
  if (!data.train.mixture().is_streamed()) return {};
  const nlohmann::ordered_json mine = stream_places(data, sequences);
  std::vector<std::string> all;
  for (const std::string& text : gather_texts(world, base::json_text(mine)))
    for (const auto& place : nlohmann::ordered_json::parse(text)) all.push_back(place.get<std::string>());
  return furthest_places(all);
}

}  // namespace quintet::train
