# `cpack -G "DEB;TGZ"` in a build folder: everything that is installed, in one package. A .deb depends on the packages
# of the building machine to whose libraries its files link (dpkg-shlibdeps).
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_NAME ebb)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_VENDOR "The Ebb authors")
# A package names a maintainer. Set this variable before you give a package to others; the default address does not exist
# (RFC 2606).
set(EBB_PACKAGE_CONTACT "The Ebb authors <nobody@ebb.invalid>" CACHE STRING "Who answers for a package: Name <address>")
set(CPACK_PACKAGE_CONTACT "${EBB_PACKAGE_CONTACT}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_STRIP_FILES ON)

set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS python3-venv)  # text becomes tokens in Python
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
  "Training transformers larger than GPU memory: the command ebb, the library libebb with its headers,
the manual and completions of shells. All training state lives in host memory and moves to the device
in chunks, by a plan that is made before the first step.")
include(CPack)
