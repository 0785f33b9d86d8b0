set(dir ${CMAKE_CURRENT_LIST_DIR})
# Under ThreadSanitizer the runs of test_identity_races stand for the whole cover.
ebb_test(test_identity SOURCES ${dir}/test_identity.cpp ${dir}/test_regression.cpp ${dir}/test_sliced_head.cpp LIBS test_support NOT_TSAN)
ebb_test(test_ranks
  SOURCES ${dir}/test_chained_sums.cpp ${dir}/test_ranks.cpp ${dir}/test_ranks_alike.cpp ${dir}/test_ranks_decisions.cpp ${dir}/test_ranks_planted.cpp ${dir}/test_ranks_plan.cpp ${dir}/test_rounded_sums.cpp ${dir}/test_split_loads.cpp ${dir}/../scheduler/plan_edits.cpp ${dir}/../scheduler/plan_reference.cpp
  LIBS test_support)
if(EBB_SANITIZE)
  # The others plan a thousand times, or have the threads and the memory accesses of these with other types, groups and places.
  set(some RankRaces.* PlantedRanks.* Ranks.Speculation Ranks.AFailure* Ranks.TooFew*)
  if(EBB_SANITIZE MATCHES address)
    list(APPEND some RankMemory.* SplitLoads.A* PartOfLoad.*)
  endif()
  list(JOIN some ":" some)
  set_property(TARGET test_ranks PROPERTY EBB_TEST_ARGUMENTS "--gtest_filter=${some}")
endif()
ebb_test(test_delayed SOURCES ${dir}/test_delayed.cpp LIBS test_support)
if(EBB_SANITIZE MATCHES thread)
  set_property(TARGET test_delayed PROPERTY EBB_TEST_ARGUMENTS "--gtest_filter=DelayedRaces.*")
endif()
ebb_test(test_identity_races SOURCES ${dir}/test_identity_races.cpp LIBS test_support)
ebb_test(test_identity_slow SOURCES ${dir}/test_identity_slow.cpp LIBS test_support SLOW)
ebb_test(test_trainer
  SOURCES ${dir}/counting_malloc.cpp ${dir}/test_memory.cpp
    ${dir}/test_faults.cpp ${dir}/test_numeric.cpp ${dir}/test_fp16.cpp ${dir}/test_refusals.cpp ${dir}/test_micro_batches.cpp ${dir}/test_planted.cpp
    ${dir}/test_emulated_step.cpp ${dir}/test_choose.cpp ${dir}/test_chosen_settings.cpp
  LIBS test_support)
if(EBB_SANITIZE)
  # These plan many times, with the threads of ChooseTest.
  set(left_out Choose.* ChooseRecomputed.* Situations/Choosing.*)
  if(EBB_SANITIZE MATCHES thread)
    # These compare bits, or fail each operation of a step, as Faults.Launches does.
    list(APPEND left_out Planted.*ChangesBits Planted.ALostContributionIsFound Faults.NothingFollowsAStepThatFailed)
  endif()
  list(JOIN left_out ":" left_out)
  set_property(TARGET test_trainer PROPERTY EBB_TEST_ARGUMENTS "--gtest_filter=-${left_out}")
endif()
# Some of it is in test_identity_races.
ebb_test(test_speculation
  SOURCES ${dir}/test_speculation.cpp ${dir}/test_speculation_faults.cpp LIBS test_support NOT_TSAN)
ebb_test(test_checkpoint
  SOURCES ${dir}/test_checkpoint.cpp ${dir}/test_state_reader.cpp
    ${dir}/test_state_on_device.cpp LIBS test_support)
if(EBB_SANITIZE MATCHES thread)
  # These have the threads of other cases, and types do not change what threads do.
  string(JOIN ":" left_out */CheckpointOfACase.*/2 */CheckpointOfACase.*/3 */CheckpointOfACase.*/6 */CheckpointOfACase.*/7
    */CheckpointOfACase.*/8 */CheckpointOfACase.*/9 */CheckpointOfACase.*/1? *StateOnDevice.*/fp32 *StateOnDevice.*/fp16
    Checkpoint.TheFileDoesNotDependOnTheSchedule StateReader.Planted*)
  set_property(TARGET test_checkpoint PROPERTY EBB_TEST_ARGUMENTS "--gtest_filter=-${left_out}")
endif()
ebb_test(test_inference SOURCES ${dir}/test_inference.cpp LIBS test_support)
ebb_test(test_trainer_slow SOURCES ${dir}/test_faults_slow.cpp LIBS test_support SLOW)
