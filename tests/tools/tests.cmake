ebb_test(test_tools
  SOURCES io/safetensors_files.cpp model_zoo/hf_folder.cpp tools/run_ebb.cpp tools/test_batches.cpp tools/test_command_line.cpp tools/test_inference.cpp tools/test_learning_rate.cpp
    tools/test_machine.cpp tools/test_model_folders.cpp tools/test_profile.cpp tools/test_progress.cpp tools/test_run_log.cpp tools/test_sizes.cpp
    tools/test_train_options.cpp tools/test_trial.cpp
  LIBS ebb_tools)
# Measuring and choosing take minutes under ThreadSanitizer, and their threads are those of other tests.
ebb_test(test_planning SOURCES tools/run_ebb.cpp tools/test_machine_rates.cpp tools/test_plan.cpp LIBS ebb_tools NOT_TSAN)
# A signal goes to any thread that takes it: a program of its own has none that other tests left.
ebb_test(test_signals SOURCES tools/test_signals.cpp LIBS ebb_tools)
# Under ThreadSanitizer test_checkpoint, in which the same threads meet, stands for the runs of whole programs.
ebb_test(test_checkpoints SOURCES tools/run_ebb.cpp tools/checkpoint_runs.cpp tools/test_checkpoints.cpp tools/test_full_disk.cpp
  tools/test_killed.cpp LIBS ebb_tools NOT_TSAN)
ebb_test(test_killed_slow SOURCES tools/run_ebb.cpp tools/checkpoint_runs.cpp tools/test_killed_slow.cpp LIBS ebb_tools SLOW)
foreach(test test_planning test_checkpoints test_killed_slow)
  target_compile_definitions(${test} PRIVATE EBB_BINARY="$<TARGET_FILE:ebb>")
  add_dependencies(${test} ebb)
endforeach()
target_compile_definitions(test_tools PRIVATE EBB_BINARY="$<TARGET_FILE:ebb>" EBB_VERSION="${PROJECT_VERSION}"
  EBB_FIXTURES="${PROJECT_SOURCE_DIR}/tests/fixtures" EBB_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
add_dependencies(test_tools ebb)
