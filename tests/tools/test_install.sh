#!/usr/bin/env bash
# test_install: an installed kvant is enough to build against, in C and C++, through pkg-config and through CMake, also
# after the tree has been moved; the shared library carries its version.
set -euo pipefail
source_dir=${KVANT_SOURCE_DIR:?} build_dir=${KVANT_BUILD_DIR:?}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if grep -q '^KVANT_SANITIZE:STRING=.' "$build_dir/CMakeCache.txt"; then
    echo "skipped: a sanitizer build is not for installing"
    exit 77
fi

cmake --install "$build_dir" --prefix "$work/built" >"$work/log" || { cat "$work/log"; exit 1; }
mv "$work/built" "$work/kvant" # nothing may remember the first place
prefix=$work/kvant
lib=$(dirname "$(find "$prefix" -name libkvant.so)")
for file in include/kvant.h "${lib#"$prefix"/}"/{libkvant.a,pkgconfig/kvant.pc,cmake/kvant/kvantConfig.cmake}; do
    [ -e "$prefix/$file" ] || { echo "not installed: $file"; exit 1; }
done

version=$(sed -n 's/#define KVANT_VERSION_[A-Z]* *//p' "$source_dir/include/kvant.h" | paste -sd. -)
[ -e "$lib/libkvant.so.$version" ] || { echo "no libkvant.so.$version in: $(ls "$lib")"; exit 1; }

mkdir "$work/user"
cat >"$work/user/user.c" <<'C'
#include <kvant.h>
#include <stdio.h>

int main(void) {
    kvant_model *model = NULL;
    kvant_status status = kvant_model_open(&model, "/nowhere/none.gguf", NULL);
    printf("kvant %s: %s\n", kvant_version(), kvant_status_text(status));
    kvant_model_close(model);
    return status == KVANT_NOT_FOUND ? 0 : 1;
}
C
cp "$work/user/user.c" "$work/user/user_cpp.cpp"

runs() { # runs NAME PROGRAM: it says the version of this tree
    local said
    said=$(LD_LIBRARY_PATH=$lib "$2")
    [ "$said" = "kvant $version: not found" ] || { echo "FAILED: $1 says '$said'"; exit 1; }
    echo "ok: $1"
}

export PKG_CONFIG_PATH=$lib/pkgconfig
[ "$(pkg-config --modversion kvant)" = "$version" ]
cc "$work/user/user.c" $(pkg-config --cflags --libs kvant) -o "$work/user/pc"
runs 'C, pkg-config' "$work/user/pc"
c++ "$work/user/user_cpp.cpp" $(pkg-config --cflags --libs kvant) -o "$work/user/pc_cpp"
runs 'C++, pkg-config' "$work/user/pc_cpp"
cc "$work/user/user.c" $(pkg-config --cflags kvant) "$lib/libkvant.a" $(pkg-config --libs --static kvant | sed 's/-lkvant//') \
    -o "$work/user/pc_static"
runs 'C, pkg-config --static' "$work/user/pc_static"

cat >"$work/user/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.22)
project(user LANGUAGES C CXX)
find_package(kvant ${wanted} REQUIRED)
add_executable(user_c user.c)
target_link_libraries(user_c PRIVATE kvant::kvant)
add_executable(user_cpp user_cpp.cpp)
target_link_libraries(user_cpp PRIVATE kvant::kvant)
add_executable(user_static user.c)
target_link_libraries(user_static PRIVATE kvant::kvant_static)
CMAKE
{ cmake -G Ninja -S "$work/user" -B "$work/user/build" -Dwanted="$version" -DCMAKE_PREFIX_PATH="$prefix" &&
    cmake --build "$work/user/build"; } >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
for program in user_c user_cpp user_static; do runs "find_package, $program" "$work/user/build/$program"; done
if cmake -G Ninja -S "$work/user" -B "$work/user/other" -Dwanted=99.0 -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1; then
    echo "FAILED: version 99.0 is found"
    exit 1
fi

if [ -x "$prefix/bin/kvant" ]; then
    "$prefix/bin/kvant" --version | grep -qF "$version" || { echo "FAILED: kvant --version"; exit 1; }
    echo "ok: kvant --version"
fi
