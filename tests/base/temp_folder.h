// A temporary folder for one test, removed afterwards.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "base/error.h"

namespace quintet::test {

class TempFolder {
 public:
  TempFolder() {
    std::string name = testing::TempDir() + "quintet_XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot create a temporary folder");
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// The message of the UserError that `action` throws; fails the test when it throws none.
template <class Action>
std::string user_error(Action&& action) {
  try {
    action();
  } catch (const base::UserError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no UserError was thrown";
  return {};
}

}  // namespace quintet::test

#define EXPECT_CONTAINS(text, part) \
  EXPECT_NE(std::string(text).find(part), std::string::npos) << "'" << (text) << "' lacks '" << (part) << "'"
