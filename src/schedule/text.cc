#include "schedule/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "schedule/check.h"

namespace quintet::schedule {
namespace {

struct Word {
  std::string_view text;
  int column;  // 1-based
};

class Reader {
 public:
  Reader(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  Schedule read() {
    while (next_line()) {
      if (words_.empty()) continue;
      if (words_[0].text.ends_with(':'))
        rank_line();
      else
        header_line();
    }
    finish();
    return std::move(s_);
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(int column, fmt::format_string<Args...> text, Args&&... args) {
    base::fail_user("{}:{}:{}: {}", file_, line_, column, fmt::format(text, std::forward<Args>(args)...));
  }

  bool next_line() {
    if (text_.empty()) return false;
    const size_t end = text_.find('\n');
    std::string_view line = text_.substr(0, end);
    text_ = end == std::string_view::npos ? std::string_view{} : text_.substr(end + 1);
    ++line_;
    line = line.substr(0, line.find('#'));
    words_.clear();
    for (size_t at = 0; (at = line.find_first_not_of(" \t\r", at)) != std::string_view::npos;) {
      const size_t stop = std::min(line.find_first_of(" \t\r", at), line.size());
      words_.push_back({line.substr(at, stop - at), static_cast<int>(at) + 1});
      at = stop;
    }
    return true;
  }

  int number(std::string_view text, int column, int least) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value < least)
      fail(column, "expected an integer of at least {}, found '{}'", least, text);
    return value;
  }

  const Word& only_value() {
    if (words_.size() != 2)
      fail(words_[0].column, "'{}' takes one value, found {}", words_[0].text, words_.size() - 1);
    return words_[1];
  }

  void header_line() {
    const Word& key = words_[0];
    if (!s_.ranks.empty()) fail(key.column, "'{}' must come before the ranks", key.text);
    if (!seen_.emplace(std::string(key.text), line_).second)
      fail(key.column, "'{}' appears twice, first on line {}", key.text, seen_.at(std::string(key.text)));
    const auto count = [&] {
      const Word& value = only_value();
      return number(value.text, value.column, 1);
    };
    if (key.text == "schedule") {
      s_.name = only_value().text;
    } else if (key.text == "stages") {
      s_.stages = count();
    } else if (key.text == "chunks") {
      s_.chunks = count();
    } else if (key.text == "micro_batches") {
      s_.micro_batches = count();
    } else if (key.text == "placement") {
      const Word& value = only_value();
      if (value.text != "looped" && value.text != "v")
        fail(value.column, "placement must be 'looped' or 'v', found '{}'", value.text);
      s_.placement = value.text == "v" ? Placement::VShape : Placement::Looped;
    } else if (key.text == "max_in_flight") {
      for (size_t i = 1; i < words_.size(); ++i)
        s_.max_in_flight.push_back(number(words_[i].text, words_[i].column, 0));
    } else {
      fail(key.column,
           "expected schedule, stages, chunks, micro_batches, placement, max_in_flight or a rank such as "
           "'0:', found '{}'",
           key.text);
    }
  }

  void rank_line() {
    const Word& head = words_[0];
    const int rank = number(head.text.substr(0, head.text.size() - 1), head.column, 0);
    if (rank != static_cast<int>(s_.ranks.size()))
      fail(head.column, "expected rank {}, found rank {}: ranks must be in order", s_.ranks.size(), rank);
    std::vector<Action>& actions = s_.ranks.emplace_back();
    for (size_t i = 1; i < words_.size(); ++i) {
      std::string_view rest = words_[i].text;
      int column = words_[i].column;
      for (size_t plus; (plus = rest.find('+')) != std::string_view::npos;) {
        actions.push_back(action(rest.substr(0, plus), column));
        actions.back().with_next = true;
        rest = rest.substr(plus + 1);
        column += static_cast<int>(plus) + 1;
      }
      actions.push_back(action(rest, column));
    }
  }

  Action action(std::string_view text, int column) {
    const size_t kind_at = std::min(text.find_first_not_of("0123456789"), text.size());
    const size_t micro_at = std::min(text.find_first_of("0123456789", kind_at), text.size());
    const std::string_view kind = text.substr(kind_at, micro_at - kind_at);
    Action a;
    if (kind == "F")
      a.kind = Kind::F;
    else if (kind == "B")
      a.kind = Kind::B;
    else if (kind == "W")
      a.kind = Kind::W;
    else if (kind == "BW")
      a.kind = Kind::BW;
    else
      fail(column, "expected an action such as 0F3 or 1BW2 (chunk, F, B, W or BW, micro-batch), found '{}'",
           text);
    a.chunk = number(text.substr(0, kind_at), column, 0);
    a.micro = number(text.substr(micro_at), column + static_cast<int>(micro_at), 0);
    if (a.chunk >= s_.chunks)
      fail(column, "{}: chunk out of range; there are {} chunks, numbered from 0", text, s_.chunks);
    if (a.micro >= s_.micro_batches)
      fail(column, "{}: micro-batch out of range; there are {} micro-batches, numbered from 0", text,
           s_.micro_batches);
    s_.splits_backward |= a.kind == Kind::B || a.kind == Kind::W;
    return a;
  }

  void finish() {
    for (const char* key : {"schedule", "stages", "chunks", "micro_batches", "placement"})
      if (!seen_.contains(key)) base::fail_user("{}: missing line '{} ...' before the ranks", file_, key);
    if (static_cast<int>(s_.ranks.size()) != s_.stages)
      base::fail_user("{}: {} stages, but {} rank lines", file_, s_.stages, s_.ranks.size());
  }

  std::string_view text_;
  std::string_view file_;
  int line_ = 0;
  std::vector<Word> words_;
  std::map<std::string, int> seen_;  // header key to its line
  Schedule s_;
};

}  // namespace

std::string print(const Schedule& s) {
  std::string out = fmt::format("schedule {}\nstages {}\nchunks {}\nmicro_batches {}\nplacement {}\n", s.name,
                                s.stages, s.chunks, s.micro_batches, to_text(s.placement));
  if (!s.max_in_flight.empty()) out += fmt::format("max_in_flight {}\n", fmt::join(s.max_in_flight, " "));
  for (size_t rank = 0; rank < s.ranks.size(); ++rank) {
    out += fmt::format("{}:", rank);
    bool joined = false;
    for (const Action& action : s.ranks[rank]) {
      out += joined ? "+" : " ";
      out += to_text(action);
      joined = action.with_next;
    }
    out += '\n';
  }
  return out;
}

Schedule parse(std::string_view text, std::string_view file) { return Reader(text, file).read(); }

Schedule load(const std::string& path) {
  Schedule schedule = parse(base::read_file(path), path);
  try {
    check(schedule);
  } catch (const base::UserError& e) {
    base::fail_user("{}: {}", path, e.what());
  }
  return schedule;
}

}  // namespace quintet::schedule
