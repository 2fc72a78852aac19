#include "musart/text.h"

#include <stdio.h>

#include <charconv>
#include <cmath>

namespace musart {

std::string_view trim(std::string_view text) {
  const char* blanks = " \t\r\n";
  const size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<int64_t> parse_int(std::string_view text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_bytes(std::string_view text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr Unit kUnits[] = {
      {"B", 1},    {"KiB", 1024}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0},
      {"kB", 1e3}, {"MB", 1e6},   {"GB", 1e9},        {"TB", 1e12},
  };
  text = trim(text);
  const size_t unit_at = text.find_first_not_of("0123456789.");
  const auto number = parse_number(trim(text.substr(0, unit_at)));
  if (!number) return std::nullopt;
  double scale = 1;
  if (unit_at != std::string_view::npos) {
    const std::string_view name = trim(text.substr(unit_at));
    scale = 0;
    for (const Unit& unit : kUnits) {
      if (unit.name == name) scale = unit.bytes;
    }
  }
  const double bytes = *number * scale;
  if (scale == 0 || bytes > 9e18) return std::nullopt;
  return static_cast<int64_t>(bytes);
}

std::string format_bytes(uint64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 6) {
    value /= 1024;
    ++unit;
  }
  char text[48];
  snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
  return text;
}

}  // namespace musart
