# Toolchain file for aarch64 on a Debian host: the cross compiler, third-party libraries from the private sysroot that
# `./dev test-arm` unpacks, and qemu to run what was built.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)

get_filename_component(arm64_sysroot "${CMAKE_CURRENT_LIST_DIR}/../.cache/arm64/sysroot" ABSOLUTE)
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${arm64_sysroot}")
set(ENV{PKG_CONFIG_LIBDIR} "${arm64_sysroot}/usr/lib/aarch64-linux-gnu/pkgconfig")
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu "${arm64_sysroot}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY BOTH)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE BOTH)

# The processor that qemu plays: "max" has every extension, KVANT_ARM64_CPU=cortex-a53 has the least.
if(DEFINED ENV{KVANT_ARM64_CPU})
  set(arm64_cpu $ENV{KVANT_ARM64_CPU})
else()
  set(arm64_cpu max)
endif()
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu -cpu ${arm64_cpu})
