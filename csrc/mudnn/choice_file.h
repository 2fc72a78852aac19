// The file that keeps measured choices: a line of version, one of the machine, one for each choice, and a checksum.
#pragma once

#include <map>
#include <string>

#include "mudnn/selection.h"

namespace mudnn {

/// What the file holds. Empty, with the reason in `problem`, when it is damaged, of another version or machine; empty
/// without one when there is no file.
std::map<uint64_t, Record> read_choices(const std::string& path, const std::string& machine, std::string* problem);

/// Replaces the file by what it holds together with `records`; where both have a key the file's choice stays. Returns
/// why it couldn't be done, else an empty text. Processes that write at the same time wait for each other.
std::string write_choices(
    const std::string& path, const std::string& machine, const std::map<uint64_t, Record>& records);

/// The file that TORCH_MUSA_SIM_AUTOTUNE_CACHE names, or the default in the user's folder of caches; empty: none.
std::string choice_file_path();
/// The CPU and the instruction set in force.
std::string machine_line();

}  // namespace mudnn
