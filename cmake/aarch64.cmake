# Toolchain of the preset `aarch64`: GCC for 64-bit ARM (Debian package g++-aarch64-linux-gnu), programs run by qemu-user.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
# `max` has dotprod and i8mm. The programs are static, so it needs no files of that machine.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64;-cpu;max)
