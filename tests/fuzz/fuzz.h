// What the fuzz targets share. A target is one source file that defines test_input(). It is built
// with libFuzzer (clang), or with mutations.cpp, which feeds it changed seeds (any compiler).
//
// A parser may refuse an input only with the errors that it promises. fuzz.cpp ends the program if
// an input causes another exception, or more than a second of processor time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "device/errors.h"

namespace ebb::fuzz {

using Bytes = std::span<const std::byte>;

/// Defined by each target: parses the input as a file of the target's format, and checks what must
/// hold for each accepted input.
void test_input(Bytes input);

/// Ends the program if a property does not hold.
void require(bool holds, std::string_view property);

/// Writes a file into a folder in memory that this process owns, and returns its path.
std::string write_file(const std::string& name, Bytes content);
std::string folder();

/// The bytes of a text.
inline Bytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
/// The text of an input.
inline std::string text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// How often the strictest parser of a target accepted an input. mutations.cpp checks that a target
/// accepts a seed.
inline uint64_t num_accepted = 0;
/// Each target calls this behind its strictest parser.
inline void note_accepted() { ++num_accepted; }

/// Calls `parse`. False if it throws an error that parsers promise.
template <class Parse>
bool is_accepted(const Parse& parse) {
  try {
    parse();
    return true;
  } catch (const ConfigError&) {
  } catch (const FormatError&) {
  } catch (const IoError&) {
  }
  return false;
}

/// The same where no input may be refused: an error ends the program.
template <class Parse>
void must_accept(const Parse& parse) {
  try {
    parse();
  } catch (const Error& error) {
    require(false, std::string("an error where none is allowed: ") + error.what());
  }
}

}  // namespace ebb::fuzz
