// Python beside a test, for what is compared with transformers. EBB_PYTHON names one that has it.
#pragma once

#include <string>

namespace ebb::test {

/// EBB_PYTHON, else "python3".
std::string python();

/// A file of this source tree.
std::string source_path(const std::string& path);

/// What a command says on stdout; nothing where it fails.
std::string output_of(const std::string& command);

/// Can it import these modules ("torch, transformers")?
bool python_has(const std::string& modules);

}  // namespace ebb::test

/// Skips, visibly, where Python lacks them.
#define EBB_SKIP_WITHOUT_PYTHON(modules)                                 \
  if (!::ebb::test::python_has(modules))                                 \
  GTEST_SKIP() << "'" << ::ebb::test::python() << "' has no " << modules \
               << "; EBB_PYTHON names another"
