# Installs the build. Then configures, builds and runs the examples as a separate project that gets only the prefix.
cmake_minimum_required(VERSION 3.25)

function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${what} ended with ${result}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(expect condition)
  cmake_language(EVAL CODE "if(NOT (${condition}))\n message(FATAL_ERROR [=[not true: ${condition}\n${output}]=])\nendif()")
endfunction()

set(prefix ${WORK_DIR}/prefix)
file(REMOVE_RECURSE ${WORK_DIR})
run("the installation" ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})
expect("EXISTS ${prefix}/include/ebb/ebb/ebb.h")
expect("EXISTS ${prefix}/include/ebb/device/device.h")
expect("NOT EXISTS ${prefix}/include/ebb/cuda")
expect("EXISTS ${prefix}/${LIBRARY_DIR}/${SONAME}")
expect("IS_SYMLINK ${prefix}/${LIBRARY_DIR}/${SONAME}")
run("the installed command" ${prefix}/bin/ebb --version)
expect("\"${output}\" MATCHES \"${VERSION}\"")

# A project that uses Ebb must not need the dependencies of Ebb.
set(hidden)
foreach(package TBB fmt nlohmann_json PkgConfig Eigen3 CUDAToolkit)
  list(APPEND hidden -D CMAKE_DISABLE_FIND_PACKAGE_${package}=ON)
endforeach()
# The examples are those of the installation.
set(examples ${prefix}/share/doc/ebb/examples)
run("configuring the examples" ${CMAKE_COMMAND} -S ${examples} -B ${WORK_DIR}/build -G ${GENERATOR}
  -D CMAKE_BUILD_TYPE=Release -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_PREFIX_PATH=${prefix}
  -D "CMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Werror" ${hidden})
run("building the examples" ${CMAKE_COMMAND} --build ${WORK_DIR}/build)

run("embed" ${WORK_DIR}/build/embed/embed host ${WORK_DIR}/embed.state)
message("${output}")
expect("\"${output}\" MATCHES \"0 of [0-9]+ compared gradients are wrong\"")
expect("\"${output}\" MATCHES \"saved and restored\"")
string(REGEX MATCH "loss ([0-9.]+) -> ([0-9.]+)" _ "${output}")
set(first ${CMAKE_MATCH_1})
set(last ${CMAKE_MATCH_2})
expect("\"${first}\" GREATER 0 AND \"${last}\" LESS \"${first}\"")

# Three ways to accumulate gradients give the same losses (otherwise the exit code is 1), and the model learns the digits.
run("mnist_mlp" ${WORK_DIR}/build/mnist_mlp/mnist_mlp ${SOURCE_DIR}/examples/mnist_mlp/digits)
message("${output}")
string(REGEX MATCHALL "right [0-9.]+" all_right "${output}")
foreach(right ${all_right})
  string(REPLACE "right " "" right ${right})
  expect("${right} GREATER 85")
endforeach()
list(LENGTH all_right num_right)
expect("${num_right} EQUAL 3")

# One rank, then two: three times the same state (otherwise the exit code is 1).
run("ranks" ${WORK_DIR}/build/ranks/ranks)
message("${output}")
string(REGEX MATCHALL "state_hash [0-9a-f]+" states "${output}")
list(LENGTH states num_states)
list(REMOVE_DUPLICATES states)
list(LENGTH states num_different)
expect("${num_states} EQUAL 3 AND ${num_different} EQUAL 1")

# A run that was stopped between two saves and resumed ends with the same state.
set(pretrain ${WORK_DIR}/build/pretrain/pretrain ${SOURCE_DIR}/scheduler)
run("pretrain" ${pretrain} ${WORK_DIR}/whole 30)
message("${output}")
string(REGEX MATCH "state [0-9a-f]+" whole "${output}")
run("pretrain, stopped" ${pretrain} ${WORK_DIR}/stopped 30 15)
run("pretrain, resumed" ${pretrain} ${WORK_DIR}/stopped 30)
string(REGEX MATCH "state [0-9a-f]+" resumed "${output}")
expect("\"${whole}\" MATCHES \"state\" AND \"${whole}\" STREQUAL \"${resumed}\"")
expect("NOT \"${output}\" MATCHES \"step 10 \"")  # the run did not restart

# The next example continues with the weights of the previous one (the exit code is 1 if they do not help), and ebb reads them.
run("finetune" ${WORK_DIR}/build/finetune/finetune ${WORK_DIR}/whole/weights ${SOURCE_DIR}/README.md ${WORK_DIR}/finetuned 20)
message("${output}")
# A folder that transformers wrote, and tokens that count up by one.
run("writing tokens" ${PYTHON} -c "open('${WORK_DIR}/tokens.bin', 'wb').write(bytes(byte for i in range(4000) for byte in (i % 37, 0)))")
run("finetune, tokens" ${WORK_DIR}/build/finetune/finetune ${SOURCE_DIR}/tests/fixtures/hf/llama ${WORK_DIR}/tokens.bin
  ${WORK_DIR}/llama 50 u16)
message("${output}")
expect("EXISTS ${WORK_DIR}/llama/generation_config.json")
run("the command" ${prefix}/bin/ebb convert --model ${WORK_DIR}/finetuned --to ${WORK_DIR}/converted --save-dtype fp32)
