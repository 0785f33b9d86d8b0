// The Python program that makes tokens of text, as the bytes of a zip archive. embed_scripts.py
// makes the source file of this header.
#pragma once

#include <string_view>

namespace ebb {

std::string_view text_archive();

}  // namespace ebb
