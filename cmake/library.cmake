# The library for other programs: libebb.so contains every module except tools and links its own dependencies, so that a program
# needs only the headers and this file. The public headers are those that ebb/ebb.h includes, and those of modules that can be
# used alone. They include only each other and the standard library (tests/structure checks this).
include(CMakePackageConfigHelpers)

set(EBB_PUBLIC_HEADERS ebb/ebb.h)
foreach(module_and_headers
    "system numa parallel_loop thread_team"
    "device adamw_options arithmetic device dropout dtype errors ignored_label inline_function kernel_arguments loss_scale own_kernel planes random
      stream tensor update_sizes"
    "chunk chunk_record index layout ledger rank_place"
    "comm process_ranks ranks thread_ranks"
    "cpu_adam adamw gradient_norm"
    "io data_folder document_file input_file label_file new_file npy_file plain_text safetensors safetensors_folder
      safetensors_folder_writer safetensors_writer sample_order
      stored_tensor token_data token_file"
    "autograd arena functions gradient_check hooks model observed_layer parameters primitives recompute tape tape_options"
    "scheduler/plan block_need groups message op plan schedule simulate timeline trace validate"
    "scheduler/search inference_preparation layer_summary options preparation"
    "scheduler/run inference learning_rate micro_batch state_reader trainer"
    "model_zoo architecture bert checkpoint generation gpt2 hugging_face_config hugging_face_tensors hugging_face_weights llama mlp model_files
      presets rotary transformer")
  separate_arguments(names UNIX_COMMAND "${module_and_headers}")
  list(POP_FRONT names module)
  foreach(name ${names})
    list(APPEND EBB_PUBLIC_HEADERS ${module}/${name}.h)
  endforeach()
endforeach()
set(headers ${EBB_PUBLIC_HEADERS})
list(TRANSFORM headers PREPEND ${PROJECT_SOURCE_DIR}/)

get_property(modules GLOBAL PROPERTY EBB_MODULES)
list(REMOVE_ITEM modules ebb_tools)
list(TRANSFORM modules REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)

# The library contains the objects of the modules; linking the modules too adds their dependencies.
add_library(ebb_shared SHARED ebb/version.cpp ${objects})
add_library(Ebb::ebb ALIAS ebb_shared)
target_compile_definitions(ebb_shared PRIVATE EBB_VERSION="${PROJECT_VERSION}")
target_compile_features(ebb_shared PUBLIC cxx_std_20)
target_link_libraries(ebb_shared PRIVATE ${modules})
target_link_options(ebb_shared PRIVATE -Wl,--exclude-libs,libcudart_static.a)
if(NOT EBB_SANITIZE)
  target_link_options(ebb_shared PRIVATE -Wl,--no-undefined)
endif()
target_sources(ebb_shared PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${headers})
set_target_properties(ebb_shared PROPERTIES
  OUTPUT_NAME ebb EXPORT_NAME ebb VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Ebb)
install(TARGETS ebb_shared EXPORT EbbTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ebb)
install(EXPORT EbbTargets NAMESPACE Ebb:: DESTINATION ${package_dir})
configure_package_config_file(cmake/EbbConfig.cmake.in ${PROJECT_BINARY_DIR}/EbbConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/EbbConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/EbbConfig.cmake ${PROJECT_BINARY_DIR}/EbbConfigVersion.cmake
  DESTINATION ${package_dir})
# The pages refer to each other and to the examples as in the source tree.
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs examples DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN make EXCLUDE)
