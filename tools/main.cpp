#include "tools/commands.h"

int main(int argc, char** argv) { return ebb::run_command({argv + 1, argv + argc}); }
