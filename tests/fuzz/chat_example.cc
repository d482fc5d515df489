// Lines of chat data in every format: the first byte chooses one, or that it is detected. What is accepted
// has a flag for each message.
#include "chat/example.h"
#include "fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  if (size < 1) return 0;
  return fuzz::run([&] {
    const chat::Json line = chat::Json::parse(fuzz::text_of(data + 1, size - 1), nullptr, false);
    if (line.is_discarded()) base::fail_user("not valid JSON");
    const auto names = chat::format_names();
    const size_t chosen = data[0] % (names.size() + 1);
    const chat::Format format =
        chosen < names.size() ? chat::format_of_name(names[chosen]) : chat::detect_format(line);
    const chat::Record record = chat::parse_record(line, format);
    fuzz::require(record.format == format, "the record of another format");
    for (const chat::Example* example : {&record.example, record.rejected ? &*record.rejected : nullptr})
      if (example != nullptr)
        fuzz::require(example->trainable.size() == example->messages.size(), "a flag per message");
  });
}
