// Runs Python for tests that compare with transformers. EBB_PYTHON names a Python that has it.
#pragma once

#include <string>

namespace ebb::test {

/// EBB_PYTHON, or "python3" if the variable is not set.
std::string python();

/// The path of a file of this source tree.
std::string source_path(const std::string& path);

/// The stdout of a command, or "" if the command fails.
std::string output_of(const std::string& command);

/// Whether Python can import these modules ("torch, transformers").
bool python_has(const std::string& modules);

}  // namespace ebb::test

/// Skips the test if Python lacks the modules.
#define EBB_SKIP_WITHOUT_PYTHON(modules)                                 \
  if (!::ebb::test::python_has(modules))                                 \
  GTEST_SKIP() << "'" << ::ebb::test::python() << "' has no " << modules \
               << "; EBB_PYTHON names another"
