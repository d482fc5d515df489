// The report of a run, or of two runs side by side, as one HTML page.
#pragma once

#include <string>
#include <vector>

#include "report/run_files.h"

namespace quintet::report {

// One run or two.
std::string run_page(const std::vector<RunFiles>& runs);

// Reads the run folders and writes the page.
void write_run_page(const std::vector<base::Path>& folders, const base::Path& file);

}  // namespace quintet::report
