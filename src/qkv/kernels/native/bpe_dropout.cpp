// BPE-dropout: random segmentations of words, with the draws of Python's `random.Random`, text by text.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <new>
#include <vector>

namespace {

// Matsumoto & Nishimura's MT19937, seeded and read as CPython does it, so that Python without the kernel draws the same.
class Random {
  public:
    explicit Random(uint64_t seed) {
        static const State begun;
        std::copy(begun.words, begun.words + N, state_);
        const uint32_t key[2] = {uint32_t(seed), uint32_t(seed >> 32)};
        const int length = key[1] ? 2 : 1;
        int i = 1;
        for (int k = 0; k < N; ++k) {
            const int j = k % length;
            state_[i] = (state_[i] ^ mixed(i) * 1664525u) + key[j] + j;
            i = next(i);
        }
        for (int k = 1; k < N; ++k) {
            state_[i] = (state_[i] ^ mixed(i) * 1566083941u) - i;
            i = next(i);
        }
        state_[0] = 0x80000000u;
    }

    double uniform() {
        const uint32_t a = word() >> 5, b = word() >> 6;
        return (a * 67108864.0 + b) * (1.0 / 9007199254740992.0);
    }

  private:
    static constexpr int N = 624, M = 397;

    struct State {
        uint32_t words[N];
        State() {
            words[0] = 19650218u;
            for (int i = 1; i < N; ++i) words[i] = 1812433253u * (words[i - 1] ^ (words[i - 1] >> 30)) + i;
        }
    };

    uint32_t state_[N];
    int at_ = 0;

    uint32_t mixed(int i) const { return state_[i - 1] ^ (state_[i - 1] >> 30); }

    int next(int i) {
        if (++i < N) return i;
        state_[0] = state_[N - 1];
        return 1;
    }

    // Most texts need few words, so each is twisted when it is read.
    uint32_t word() {
        const uint32_t twisted = (state_[at_] & 0x80000000u) | (state_[(at_ + 1) % N] & 0x7fffffffu);
        uint32_t y = state_[at_] = state_[(at_ + M) % N] ^ (twisted >> 1) ^ (twisted & 1 ? 0x9908b0dfu : 0u);
        at_ = (at_ + 1) % N;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c5680u;
        y ^= (y << 15) & 0xefc60000u;
        return y ^ (y >> 18);
    }
};

struct Merge {
    int rank, made;
};

struct Candidate {
    int rank, place, made;
    // std's heaps have the greatest element first
    bool operator<(const Candidate& other) const {
        return rank != other.rank ? rank > other.rank : place > other.place;
    }
};

class Model {
  public:
    // Of merge r: pairs[2 r] and pairs[2 r + 1] become made[r], which is split into them again where splits[r].
    Model(const int* pairs, const int* made, const char* splits, long merges, long vocabulary, double log_keep)
        : halves_(2 * vocabulary, -1), sizes_(vocabulary, 0), log_keep_(log_keep) {
        long room = 16;
        while (room < 2 * merges) room *= 2;
        table_.assign(room, {-1, -1, {0, 0}});
        for (long r = 0; r < merges; ++r) {
            const int left = pairs[2 * r], right = pairs[2 * r + 1];
            Entry& entry = table_[slot(left, right)];
            if (entry.left < 0) entry = {left, right, {int(r), made[r]}};
            if (splits[r] && halves_[2 * made[r]] < 0) {
                halves_[2 * made[r]] = left;
                halves_[2 * made[r] + 1] = right;
            }
        }
        for (long id = 0; id < vocabulary; ++id) measure(int(id));
    }

    bool sound() const { return sound_; }
    long vocabulary() const { return long(sizes_.size()); }
    long size(int id) const { return whole(id) ? 1 : sizes_[id]; }

    long gap(Random& random) const {
        const double drawn = std::log1p(-random.uniform()) / log_keep_;
        return drawn < 9e18 ? long(drawn) : long(9e18);
    }

    const Merge* find(int left, int right) const {
        const Entry& entry = table_[slot(left, right)];
        return entry.left < 0 ? nullptr : &entry.merge;
    }

    // The symbols of a word before any merge.
    void apart(const int* word, long length, std::vector<int>& symbols, std::vector<int>& waiting) const {
        symbols.clear();
        waiting.assign(std::reverse_iterator<const int*>(word + length), std::reverse_iterator<const int*>(word));
        while (!waiting.empty()) {
            const int symbol = waiting.back();
            waiting.pop_back();
            if (whole(symbol)) {
                symbols.push_back(symbol);
            } else {
                waiting.push_back(halves_[2 * symbol + 1]);
                waiting.push_back(halves_[2 * symbol]);
            }
        }
    }

  private:
    struct Entry {
        int left, right;
        Merge merge;
    };

    std::vector<Entry> table_;  // hashed, with linear probing
    std::vector<int> halves_;   // two of each id, -1 where it is never split
    std::vector<long> sizes_;   // of each id in symbols that are not split
    double log_keep_;
    bool sound_ = true;

    // Ids above the vocabulary are of added tokens.
    bool whole(int id) const { return id >= vocabulary() || halves_[2 * id] < 0; }

    long slot(int left, int right) const {
        const long last = long(table_.size()) - 1;
        uint64_t hash = (uint64_t(uint32_t(left)) << 32 | uint32_t(right)) * 0x9e3779b97f4a7c15u;
        long at = long(hash >> 32) & last;
        while (table_[at].left >= 0 && (table_[at].left != left || table_[at].right != right)) at = (at + 1) & last;
        return at;
    }

    void measure(int whole) {
        std::vector<int> stack{whole};
        while (!stack.empty() && sound_) {
            const int id = stack.back(), left = halves_[2 * id], right = halves_[2 * id + 1];
            if (sizes_[id] || left < 0) {
                if (!sizes_[id]) sizes_[id] = 1;
                stack.pop_back();
            } else if (sizes_[left] && sizes_[right]) {
                sizes_[id] = sizes_[left] + sizes_[right];
                stack.pop_back();
            } else {
                if (!sizes_[right]) stack.push_back(right);
                if (!sizes_[left]) stack.push_back(left);
            }
            sound_ = long(stack.size()) <= 2 * vocabulary() + 2;  // more only where a piece contains itself
        }
    }
};

// Room for one word's merges, kept from word to word.
struct Room {
    std::vector<int> symbols, waiting, after, before;
    std::vector<Candidate> heap, dropped;
};

void push(const Model& model, Room& room, int left) {
    const int right = room.after[left];
    if (const Merge* merge = model.find(room.symbols[left], room.symbols[right])) {
        room.heap.push_back({merge->rank, left, merge->made});
        std::push_heap(room.heap.begin(), room.heap.end());
    }
}

// Merge by rank, and drop a candidate where the gap is used up; returns what is left of the gap.
long merge(const Model& model, Room& room, long gap, Random& random) {
    const int size = int(room.symbols.size());
    room.after.resize(size);
    room.before.resize(size);
    room.heap.clear();
    room.dropped.clear();
    for (int i = 0; i < size; ++i) room.after[i] = i + 1, room.before[i] = i - 1;
    for (int i = 0; i + 1 < size; ++i) push(model, room, i);
    while (!room.heap.empty()) {
        std::pop_heap(room.heap.begin(), room.heap.end());
        const Candidate best = room.heap.back();
        room.heap.pop_back();
        const int i = best.place, j = room.after[i];
        if (room.symbols[i] < 0 || j == size) continue;
        const Merge* now = model.find(room.symbols[i], room.symbols[j]);
        if (!now || now->rank != best.rank || now->made != best.made) continue;  // an earlier merge has used a symbol
        if (gap == 0) {
            gap = model.gap(random);
            room.dropped.push_back(best);
            continue;
        }
        --gap;
        room.symbols[i] = best.made;
        room.symbols[j] = -1;
        room.after[i] = room.after[j];
        if (room.after[i] < size) room.before[room.after[i]] = i;
        if (room.before[i] >= 0) push(model, room, room.before[i]);
        if (room.after[i] < size) push(model, room, i);
        for (const Candidate& one : room.dropped) {  // dropped for this step only
            room.heap.push_back(one);
            std::push_heap(room.heap.begin(), room.heap.end());
        }
        room.dropped.clear();
    }
    return gap;
}

}  // namespace

extern "C" {

// Null where a piece contains itself, or there is no memory.
void* qkv_bpe_dropout_new(const int* pairs, const int* made, const char* splits, long merges, long vocabulary, double log_keep) {
    try {
        Model* model = new Model(pairs, made, splits, merges, vocabulary, log_keep);
        if (model->sound()) return model;
        delete model;
    } catch (const std::bad_alloc&) {
    }
    return nullptr;
}

void qkv_bpe_dropout_free(void* model) { delete static_cast<Model*>(model); }

// `texts`: of each text the number of its words, the lengths of its words, and their ids. Writes the ids of all texts to
// `out` as far as there is `room`, and the number of each text's ids to `lengths`; returns the number of all, or -1.
long qkv_bpe_dropout_sample(
    const void* handle, const int* texts, const uint64_t* seeds, long count, int* out, long room, long* lengths
) {
    const Model& model = *static_cast<const Model*>(handle);
    long written = 0;
    const auto put = [&](int id) {
        if (written < room) out[written] = id;
        ++written;
    };
    try {
        Room space;
        for (long t = 0; t < count; ++t) {
            const long words = texts[0], start = written;
            const int *size = texts + 1, *ids = size + words;
            Random random(seeds[t]);
            long gap = model.gap(random);
            for (long w = 0; w < words; ids += size[w++]) {
                long symbols = 0;
                for (long i = 0; i < size[w]; ++i) symbols += model.size(ids[i]);
                const long merges = symbols - size[w];
                if (gap >= merges) {
                    gap -= merges;
                    for (long i = 0; i < size[w]; ++i) put(ids[i]);
                    continue;
                }
                model.apart(ids, size[w], space.symbols, space.waiting);
                gap = merge(model, space, gap, random);
                for (const int symbol : space.symbols)
                    if (symbol >= 0) put(symbol);
            }
            texts = ids;
            lengths[t] = written - start;
        }
    } catch (const std::bad_alloc&) {
        return -1;
    }
    return written;
}
}
