#include "io/foreign_content.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "device/errors.h"
#include "io/plain_text.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLfsVersion = "version https://git-lfs.github.com/spec/";

constexpr std::string_view kXetVersion = "# xet version ";

constexpr std::string_view kWebPage =
    "a web page or XML, often the error message of a failed download: download it again";

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The number after `key`; empty if the text has no such key.
std::string_view number_after(std::string_view text, std::string_view key) {
  const size_t at = text.find(key);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = text.substr(at + key.size());
  return rest.substr(0, rest.find_first_not_of("0123456789"));
}

}  // namespace

void refuse_pointer(const std::string& path, std::span<const std::byte> file) {
  std::string_view text = text_of(file);
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const bool is_lfs = text.starts_with(kLfsVersion);
  if (!is_lfs && !text.starts_with(kXetVersion)) return;
  const std::string_view size = number_after(text, is_lfs ? "\nsize " : "\nfilesize = ");
  throw FormatError(
      path, 0,
      fmt::format("this is a {} pointer, not the file itself{}: {} in the cloned repository, or "
                  "download the files with `hf download`",
                  is_lfs ? "Git LFS" : "git-xet",
                  size.empty() ? "" : fmt::format(" of {} bytes", size),
                  is_lfs ? "run `git lfs install` and `git lfs pull`" : "run `git xet checkout`"));
}

std::string foreign_content(std::span<const std::byte> file) {
  if (file.empty()) return "empty: download or write it again";
  const std::string_view text = text_of(file);
  const size_t first = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  if (first != text.npos && text[first] == '<') return std::string(kWebPage);
  const Look look = look_at(file.first(std::min(file.size(), kLookedAtBytes)));
  if (look.kind.empty() || look.kind == kSafetensorsKind) return "";
  return std::string(look.kind) + ": give the model as config.json and safetensors";
}

void refuse_broken_link(const std::string& path) {
  std::error_code error;
  const fs::path target = fs::read_symlink(path, error);
  if (error || fs::exists(path, error)) return;
  // Snapshots in the cache of the hub are links to blobs/.
  const bool is_hub_cache = target.parent_path().filename() == "blobs";
  throw ConfigError(
      fmt::format("'{}' is a link to '{}', which does not exist: {}", path, target.string(),
                  is_hub_cache ? "the download is incomplete, or its file was removed; run "
                                 "`hf download` again"
                               : "restore that file, or replace the link by the file"));
}

}  // namespace ebb
