// Numbers, sizes and lists as people write them in environment variables and card files.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace musart {

std::string_view trim(std::string_view text);
std::vector<std::string_view> split(std::string_view text, char separator);
// The whole text as a decimal integer, sign allowed.
std::optional<int64_t> parse_int(std::string_view text);
std::optional<double> parse_number(std::string_view text);
// "80GiB", "1.5 GiB", "512": bytes; units B, KiB, MiB, GiB, TiB and the decimal kB, MB, GB, TB.
std::optional<int64_t> parse_bytes(std::string_view text);
// "79.92 GiB"; whole bytes below 1 KiB.
std::string format_bytes(uint64_t bytes);

}  // namespace musart
