// Where the fields of a structure are, for Python: it fills structures too, and compares before it uses a library.
#pragma once
#include <cstddef>

struct FieldLayout {
    const char* name;
    long offset, size;
};

// Exports qkv_layout_NAME: the structure's size, then its fields, then a null name. Used outside of namespaces.
#define QKV_STRUCTURE(NAME, ...)                                                                           \
    extern "C" const FieldLayout* qkv_layout_##NAME() {                                                    \
        using Structure = NAME;                                                                            \
        static const FieldLayout layout[] = {{"", 0, sizeof(Structure)}, __VA_ARGS__, {nullptr, 0, 0}};     \
        return layout;                                                                                     \
    }
#define QKV_FIELD(NAME) {#NAME, offsetof(Structure, NAME), sizeof(Structure::NAME)}
