#include "tests/model_zoo/python.h"

#include <cstdio>
#include <cstdlib>

namespace ebb::test {

std::string python() {
  const char* requested = std::getenv("EBB_PYTHON");
  return requested != nullptr ? requested : "python3";
}

std::string source_path(const std::string& path) { return EBB_SOURCE_DIR "/" + path; }

std::string output_of(const std::string& command) {
  std::FILE* pipe = ::popen(command.c_str(), "r");
  std::string text;
  char part[4096];
  for (size_t n = 0; (n = std::fread(part, 1, sizeof part, pipe)) > 0;) text.append(part, n);
  return ::pclose(pipe) == 0 ? text : "";
}

bool python_has(const std::string& modules) {
  return !output_of(python() + " -c 'import " + modules + "; print(1)' 2>/dev/null").empty();
}

}  // namespace ebb::test
