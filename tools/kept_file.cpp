#include "tools/kept_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <system_error>

#include "device/errors.h"
#include "io/input_file.h"

namespace ebb {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 20;

uint64_t hash_of(const std::string& text) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

std::filesystem::path kept_file(const std::filesystem::path& folder, const std::string& kind,
                                const std::string& key) {
  return folder / fmt::format("{}-{:016x}.json", kind, hash_of(key));
}

std::string read_kept(const std::filesystem::path& file) {
  try {
    return read_input_file(file.string(), "kept numbers", kMostBytes);
  } catch (const Error&) {
    return "";
  }
}

bool write_kept(const std::filesystem::path& file, const std::string& text) {
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  std::filesystem::path unfinished = file;
  unfinished += fmt::format(".{}", ::getpid());
  std::ofstream out(unfinished, std::ios::binary);
  out << text;
  out.close();
  if (out) std::filesystem::rename(unfinished, file, error);
  if (out && !error) return true;
  std::filesystem::remove(unfinished, error);
  return false;
}

}  // namespace ebb
