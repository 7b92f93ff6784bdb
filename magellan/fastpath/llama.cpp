// Forward and backward pass of llama.py for small models on one core.
//
// Inside a layer, rows are processed in blocks of ROWS and attention state by state, so that the
// data in use stay in the inner caches. All matrices are row-major and padded with zeros to
// multiples of PAD columns. NaN and infinity propagate, as the training loop checks for them.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>
#include <unordered_map>
#include <vector>

namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16, TALL = 6, WIDE = 4;
#elif defined(__AVX__)
constexpr int LANES = 8, TALL = 6, WIDE = 2;
#elif defined(__aarch64__)
constexpr int LANES = 4, TALL = 6, WIDE = 4;
#else
constexpr int LANES = 4, TALL = 4, WIDE = 2;
#endif
constexpr int64_t PAD = 16, ROWS = 48;

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef int32_t ivec __attribute__((vector_size(LANES * 4)));
typedef float loose __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

inline vec load(const float* from) { return *reinterpret_cast<const loose*>(from); }
inline void store(float* to, vec value) { *reinterpret_cast<loose*>(to) = value; }
inline vec splat(float value) { return value - vec{}; }
inline int64_t padded(int64_t n) { return (n + PAD - 1) / PAD * PAD; }

typedef float four __attribute__((vector_size(16)));

inline float sum(vec value) {
  four part[LANES / 4];
  std::memcpy(part, &value, sizeof(value));
  for (int width = LANES / 8; width; width /= 2)
    for (int i = 0; i < width; i++) part[i] += part[i + width];
  return (part[0][0] + part[0][1]) + (part[0][2] + part[0][3]);
}

inline float largest(vec value) {  // undefined for NaN
  four part[LANES / 4];
  std::memcpy(part, &value, sizeof(value));
  for (int width = LANES / 8; width; width /= 2)
    for (int i = 0; i < width; i++) part[i] = part[i] > part[i + width] ? part[i] : part[i + width];
  return std::max(std::max(part[0][0], part[0][1]), std::max(part[0][2], part[0][3]));
}

// exp to 2 units in the last place, for LOW <= x <= HIGH and NaN.
constexpr float LOW = -87.3f, HIGH = 88.3f;
inline vec power(vec x) {
  // Adding 1.5 * 2^23 rounds to an integer, which is then in the lowest bits.
  const vec magic = splat(12582912.0f + 127), turned = x * 1.44269504f + magic, n = turned - magic;
  const vec r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  vec p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  return p * (vec)((ivec)turned << 23);
}

// exp(x) for x <= 0; 0 below LOW.
inline vec weigh(vec x) {
  const ivec vanishes = x < splat(LOW);
  const vec result = power(vanishes ? splat(LOW) : x);
  return vanishes ? vec{} : result;
}

// 1 / (1 + exp(-x)).
inline vec sigmoid(vec x) {
  x = x < splat(-HIGH) ? splat(-HIGH) : x;
  x = x > splat(-LOW) ? splat(-LOW) : x;
  return 1.0f / (1.0f + power(-x));
}

// ---- products -----------------------------------------------------------------------------

// HEIGHT x WIDTH vectors of C (+)= A B; entry (r, k) of A is a[r * row + k * step].
template <int HEIGHT, int WIDTH>
void tile(int64_t depth, const float* a, int64_t row, int64_t step, const float* b, int64_t ldb,
          float* c, int64_t ldc, bool add) {
  vec total[HEIGHT][WIDTH];
#pragma GCC unroll 8
  for (int r = 0; r < HEIGHT; r++)
#pragma GCC unroll 8
    for (int v = 0; v < WIDTH; v++) total[r][v] = add ? load(c + r * ldc + v * LANES) : vec{};
  for (int64_t k = 0; k < depth; k++, a += step, b += ldb) {
    vec right[WIDTH];
#pragma GCC unroll 8
    for (int v = 0; v < WIDTH; v++) right[v] = load(b + v * LANES);
#pragma GCC unroll 8
    for (int r = 0; r < HEIGHT; r++) {
      const vec left = splat(a[r * row]);
#pragma GCC unroll 8
      for (int v = 0; v < WIDTH; v++) total[r][v] += left * right[v];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < HEIGHT; r++)
#pragma GCC unroll 8
    for (int v = 0; v < WIDTH; v++) store(c + r * ldc + v * LANES, total[r][v]);
}

struct Left {  // left factor of a product, plain or transposed
  const float* at;
  int64_t row, step;
};
inline Left plain(const float* at, int64_t ld) { return {at, ld, 1}; }
inline Left turned(const float* at, int64_t ld) { return {at, 1, ld}; }

template <int WIDTH>
void strip(int64_t rows, int64_t depth, Left a, const float* b, int64_t ldb, float* c, int64_t ldc,
           bool add) {
  int64_t r = 0;
  for (; r + TALL <= rows; r += TALL)
    tile<TALL, WIDTH>(depth, a.at + r * a.row, a.row, a.step, b, ldb, c + r * ldc, ldc, add);
  a.at += r * a.row;
  c += r * ldc;
  switch (rows - r) {
    case 5: tile<5, WIDTH>(depth, a.at, a.row, a.step, b, ldb, c, ldc, add); break;
    case 4: tile<4, WIDTH>(depth, a.at, a.row, a.step, b, ldb, c, ldc, add); break;
    case 3: tile<3, WIDTH>(depth, a.at, a.row, a.step, b, ldb, c, ldc, add); break;
    case 2: tile<2, WIDTH>(depth, a.at, a.row, a.step, b, ldb, c, ldc, add); break;
    case 1: tile<1, WIDTH>(depth, a.at, a.row, a.step, b, ldb, c, ldc, add); break;
  }
}

// C (+)= A B for B of shape (depth, columns), columns a multiple of PAD.
void product(int64_t rows, int64_t columns, int64_t depth, Left a, const float* b, int64_t ldb,
             float* c, int64_t ldc, bool add = false) {
  int64_t at = 0;
  for (; at + WIDE * LANES <= columns; at += WIDE * LANES)
    strip<WIDE>(rows, depth, a, b + at, ldb, c + at, ldc, add);
  switch ((columns - at) / LANES) {
    case 3: strip<3>(rows, depth, a, b + at, ldb, c + at, ldc, add); break;
    case 2: strip<2>(rows, depth, a, b + at, ldb, c + at, ldc, add); break;
    case 1: strip<1>(rows, depth, a, b + at, ldb, c + at, ldc, add); break;
  }
}

#ifndef __has_builtin
#define __has_builtin(x) 0
#endif

void transpose(int64_t rows, int64_t columns, const float* from, int64_t ld, float* to,
               int64_t ldto) {
  int64_t whole_rows = 0, whole_columns = 0;
#if __has_builtin(__builtin_shufflevector)
  whole_rows = rows / 4 * 4, whole_columns = columns / 4 * 4;
  for (int64_t r = 0; r < whole_rows; r += 4)
    for (int64_t c = 0; c < whole_columns; c += 4) {
      four row[4];
      for (int i = 0; i < 4; i++) std::memcpy(row + i, from + (r + i) * ld + c, sizeof(four));
      const four a = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5),
                 b = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7),
                 d = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5),
                 e = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
      const four turned[4] = {__builtin_shufflevector(a, d, 0, 1, 4, 5),
                              __builtin_shufflevector(a, d, 2, 3, 6, 7),
                              __builtin_shufflevector(b, e, 0, 1, 4, 5),
                              __builtin_shufflevector(b, e, 2, 3, 6, 7)};
      for (int i = 0; i < 4; i++) std::memcpy(to + (c + i) * ldto + r, turned + i, sizeof(four));
    }
#endif
  for (int64_t c = 0; c < columns; c++)
    for (int64_t r = c < whole_columns ? whole_rows : 0; r < rows; r++)
      to[c * ldto + r] = from[r * ld + c];
}

// ---- arguments of the caller -----------------------------------------------------------------

struct Shape {
  int64_t layers, width, heads, keys, head, inner;  // keys: number of key and value heads
  double epsilon;
  int64_t Width() const { return padded(width); }
  int64_t Asks() const { return padded(heads * head); }
  int64_t Keys() const { return padded(keys * head); }
  int64_t Inner() const { return padded(inner); }
};

struct Tree {
  int64_t nodes, states, length, wanted_count, shift;  // shift: distance of states in `visible`
  const int64_t *tokens, *positions, *rows, *owners, *wanted;
  const uint8_t *filled, *visible;  // filled may be null
  const float *embeddings, *cosines, *sines;
};

enum { QUERY, KEY, VALUE, OUT, GATE, UP, DOWN, PROJECTIONS };

struct Projection {  // weight + scaling * b a; a and b may be null
  const float *weight, *a, *b;
  int64_t rank, a_at, b_at;  // offsets of their gradients
  double scaling;
};

struct Gains {
  const float *attention, *inner;
};

// Matrices of one layer for products, or their gradients.
struct Layer {
  float *query, *pair, *out, *inner, *down;                 // (inputs, outputs)
  float *query_t, *pair_t, *out_t, *inner_t, *down_t;       // (outputs, inputs)
};

// Give each part its number of floats, one behind the other from `at` on; returns the end.
template <int N>
float* divide(float* at, float** const (&parts)[N], const int64_t (&counts)[N]) {
  for (int i = 0; i < N; i++) {
    *parts[i] = at;
    at += counts[i];
  }
  return at;
}

int64_t one_way(const Shape& s) {
  return s.Width() * (s.Asks() * 2 + s.Keys() * 2 + s.Inner() * 3);
}

Layer layer_at(const Shape& s, const float* weights, int64_t number) {
  Layer layer;
  float* at = const_cast<float*>(weights) + number * 2 * one_way(s);
  float** parts[] = {&layer.query, &layer.pair, &layer.out, &layer.inner, &layer.down};
  float** turned[] = {&layer.query_t, &layer.pair_t, &layer.out_t, &layer.inner_t, &layer.down_t};
  const int64_t W = s.Width(), asks = W * s.Asks(), inner = W * s.Inner();
  const int64_t counts[] = {asks, W * 2 * s.Keys(), asks, 2 * inner, inner};
  divide(divide(at, parts, counts), turned, counts);
  return layer;
}

// Location of a projection in the matrices (outputs, inputs) of a layer.
struct Place {
  float* at;
  int64_t outputs, inputs, ld;
  const float* gain;  // of the norm before it
  double scale;
};

Place place(const Shape& s, const Layer& layer, const Gains& gains, int which) {
  const int64_t asks = s.heads * s.head, keys = s.keys * s.head, W = s.Width();
  switch (which) {
    case QUERY: return {layer.query_t, asks, s.width, W, gains.attention, 1 / std::sqrt(double(s.head))};
    case KEY: return {layer.pair_t, keys, s.width, W, gains.attention, 1};
    case VALUE: return {layer.pair_t + s.Keys() * W, keys, s.width, W, gains.attention, 1};
    case OUT: return {layer.out_t, s.width, asks, s.Asks(), nullptr, 1};
    case GATE: return {layer.inner_t, s.inner, s.width, W, gains.inner, 1};
    case UP: return {layer.inner_t + s.Inner() * W, s.inner, s.width, W, gains.inner, 1};
    default: return {layer.down_t, s.width, s.inner, s.Inner(), nullptr, 1};
  }
}

// ---- layout of memory ------------------------------------------------------------------------

struct Plan {
  std::vector<int32_t> used;            // number of nodes of each state
  std::vector<int32_t> first, member;   // nodes of state s: member[first[s] .. first[s + 1]]
  std::vector<int32_t> wfirst, wmember; // the same for wanted nodes, as indices into `wanted`
  std::vector<int32_t> word;            // index of a node's distinct (token, position)
  std::vector<int32_t> sample;          // one node of each distinct (token, position)
  int64_t weights = 0, last_weights = 0;  // floats of the attention weights of a layer

  Plan(const Shape& s, const Tree& t) : used(t.states), word(t.nodes) {
    for (int64_t i = 0; i < t.states; i++) {
      used[i] = t.length;
      while (t.filled && !t.filled[i * t.length + used[i] - 1]) used[i]--;
    }
    group(t, t.nodes, nullptr, first, member);
    group(t, t.wanted_count, t.wanted, wfirst, wmember);
    for (int64_t i = 0; i < t.states; i++) {
      const int64_t wide = padded(used[i]) * s.heads;
      weights += wide * (first[i + 1] - first[i]);
      last_weights += wide * (wfirst[i + 1] - wfirst[i]);
    }
    std::unordered_map<int64_t, int32_t> known;
    known.reserve(t.nodes);
    for (int64_t n = 0; n < t.nodes; n++) {
      const int64_t key = t.tokens[n] << 32 | t.positions[n];
      const auto [found, is_new] = known.try_emplace(key, sample.size());
      if (is_new) sample.push_back(n);
      word[n] = found->second;
    }
  }

  static void group(const Tree& t, int64_t count, const int64_t* which, std::vector<int32_t>& from,
                    std::vector<int32_t>& to) {
    from.assign(t.states + 1, 0);
    to.resize(count);
    auto state = [&](int64_t i) { return t.owners[which ? which[i] : i] / t.length; };
    for (int64_t i = 0; i < count; i++) from[state(i) + 1]++;
    for (int64_t i = 0; i < t.states; i++) from[i + 1] += from[i];
    std::vector<int32_t> next(from.begin(), from.end() - 1);
    for (int64_t i = 0; i < count; i++) to[next[state(i)]++] = i;
  }
};

// Activations of a layer: stored for a backward pass, else reused by the next layer.
struct Made {
  float *normed, *scale, *asks, *pairs, *weights, *mixed, *inner_normed, *inner_scale, *inner;
};

struct Sizes {
  int64_t known;  // rows of keys and values: distinct words in the first layer, nodes in others
  int64_t asking; // rows of queries
  int64_t after;  // rows of the output: wanted nodes in the last layer, all nodes in others
  int64_t weights;
};

Sizes sizes(const Shape& s, const Tree& t, const Plan& p, int64_t number) {
  const bool last = number == s.layers - 1;
  const int64_t after = last ? t.wanted_count : t.nodes, words = p.sample.size();
  return {number ? t.nodes : words, number ? after : words, after, last ? p.last_weights : p.weights};
}

int64_t make(const Shape& s, const Sizes& z, float* at, Made* made) {
  Made unused;
  Made& m = made ? *made : unused;
  float** parts[] = {&m.normed,  &m.scale, &m.asks,         &m.pairs,       &m.weights,
                     &m.mixed, &m.inner_normed, &m.inner_scale, &m.inner};
  const int64_t counts[] = {z.known * s.Width(), padded(z.known),     z.asking * s.Asks(),
                            z.known * 2 * s.Keys(), z.weights,        z.after * s.Asks(),
                            z.after * s.Width(), padded(z.after),     z.after * 2 * s.Inner()};
  return divide(at, parts, counts) - at;
}

// Matrices of a call besides `Made`.
struct Scratch {
  float *x, *wanted_x, *block, *state, *dx, *dasks, *dpairs, *dmixed, *gradients;
};

int64_t scratch(const Shape& s, const Tree& t, const Plan& p, bool backward, float* at, Scratch* to) {
  Scratch unused;
  Scratch& m = to ? *to : unused;
  const int64_t L = padded(t.length), d = padded(s.head);
  const int64_t all = std::max<int64_t>(t.nodes, p.sample.size());
  float** parts[] = {&m.x, &m.wanted_x, &m.block, &m.state, &m.dx, &m.dasks, &m.dpairs, &m.dmixed, &m.gradients};
  const int64_t block = ROWS * (s.Inner() * 4 + s.Width() * 2);
  const int64_t counts[] = {t.nodes * s.Width(),
                            t.wanted_count * s.Width(),
                            block,
                            L * L * 4 + L * d * 8,
                            backward * t.nodes * s.Width(),
                            backward * all * s.Asks(),
                            backward * all * 2 * s.Keys(),
                            backward * t.nodes * s.Asks(),
                            backward * 2 * one_way(s)};
  return divide(at, parts, counts) - at;
}

// ---- rows ------------------------------------------------------------------------------------

// normed = x * scale with scale = 1 / sqrt(mean(x^2) + epsilon), row by row.
void normalise(const Shape& s, int64_t rows, const float* x, float* normed, float* scale) {
  const int64_t W = s.Width();
  for (int64_t r = 0; r < rows; r++, x += W, normed += W) {
    vec square{};
    for (int64_t i = 0; i < W; i += LANES) square += load(x + i) * load(x + i);
    scale[r] = 1.0f / std::sqrt(sum(square) / s.width + float(s.epsilon));
    for (int64_t i = 0; i < W; i += LANES) store(normed + i, load(x + i) * scale[r]);
  }
}

// Backward pass of `normalise`, added to `dx`.
void normalise_back(const Shape& s, int64_t rows, const float* gradient, const float* normed,
                    const float* scale, float* dx) {
  const int64_t W = s.Width();
  for (int64_t r = 0; r < rows; r++, gradient += W, normed += W, dx += W) {
    vec along{};
    for (int64_t i = 0; i < W; i += LANES) along += load(gradient + i) * load(normed + i);
    const float mean = sum(along) / s.width;
    for (int64_t i = 0; i < W; i += LANES)
      store(dx + i, load(dx + i) + (load(gradient + i) - load(normed + i) * mean) * scale[r]);
  }
}

// Rotate the pairs (i, i + head / 2) of every head; direction -1 is the inverse.
void rotate(const Shape& s, const Tree& t, float* row, int64_t heads, int64_t node, float direction) {
  const int64_t half = s.head / 2;
  const float* __restrict cosine = t.cosines + t.positions[node] * half;
  const float* __restrict sine = t.sines + t.positions[node] * half;
  for (int64_t h = 0; h < heads; h++) {
    float* __restrict one = row + h * s.head;
    float* __restrict two = one + half;
    for (int64_t i = 0; i < half; i++) {
      const float a = one[i], b = two[i], turn = direction * sine[i];
      one[i] = a * cosine[i] - b * turn;
      two[i] = b * cosine[i] + a * turn;
    }
  }
}

// open = silu(gate) * up, of rows (gate | up).
void gate_rows(const Shape& s, int64_t rows, const float* inner, float* open) {
  const int64_t I = s.Inner();
  for (int64_t r = 0; r < rows; r++, inner += 2 * I, open += I)
    for (int64_t i = 0; i < I; i += LANES) {
      const vec gate = load(inner + i);
      store(open + i, gate * sigmoid(gate) * load(inner + I + i));
    }
}

// Backward pass of `gate_rows`, from dopen to dinner; recomputes open.
void gate_back(const Shape& s, int64_t rows, const float* inner, const float* dopen, float* open,
               float* dinner) {
  const int64_t I = s.Inner();
  for (int64_t r = 0; r < rows; r++, inner += 2 * I, dinner += 2 * I, open += I, dopen += I)
    for (int64_t i = 0; i < I; i += LANES) {
      const vec gate = load(inner + i), up = load(inner + I + i), gradient = load(dopen + i);
      const vec share = sigmoid(gate), opened = gate * share;
      store(open + i, opened * up);
      store(dinner + I + i, gradient * opened);
      store(dinner + i, gradient * up * (share * (1.0f + gate * (1.0f - share))));
    }
}

// ---- attention -------------------------------------------------------------------------------

// Nodes and queries of one state in one layer.
struct View {
  const Shape& s;
  const Tree& t;
  const Plan& p;
  int64_t state, used, L, d, count;
  const int32_t* mine;
  bool first, last;

  View(const Shape& s, const Tree& t, const Plan& p, int64_t number, int64_t state)
      : s(s), t(t), p(p), state(state), used(p.used[state]), L(padded(used)), d(padded(s.head)),
        first(number == 0), last(number == s.layers - 1) {
    const auto& from = last ? p.wfirst : p.first;
    mine = (last ? p.wmember : p.member).data() + from[state];
    count = from[state + 1] - from[state];
  }
  int64_t node(int64_t query) const { return last ? t.wanted[mine[query]] : mine[query]; }
  int64_t asks(int64_t query) const { return first ? p.word[node(query)] : mine[query]; }
  int64_t pairs(int64_t place) const {
    const int64_t node = t.rows[state * t.length + place];
    return first ? p.word[node] : node;
  }
};

// Attention bias, (queries, L): 0 where a query sees a place, else -infinity.
void hide(const View& v, float* bias) {
  for (int64_t q = 0; q < v.count; q++, bias += v.L) {
    const int64_t column = v.t.owners[v.node(q)] % v.t.length;
    const uint8_t* visible = v.t.visible + v.state * v.t.shift + column * v.t.length;
    for (int64_t i = 0; i < v.used; i++) bias[i] = visible[i] ? 0.0f : -INFINITY;
    for (int64_t i = v.used; i < v.L; i++) bias[i] = -INFINITY;
  }
}

void copy(const float* from, int64_t width, float* to, int64_t ldto) {
  int64_t i = 0;
  for (; i + LANES <= width; i += LANES) store(to + i, load(from + i));
  for (; i < width; i++) to[i] = from[i];
  for (; i < ldto; i++) to[i] = 0;
}

// Keys or values of one head: rows (used, d), and transposed (head, L).
void one_head(const View& v, const float* pairs, int64_t offset, float* rows, float* columns) {
  const int64_t width = 2 * v.s.Keys();
  for (int64_t i = 0; i < v.used; i++)
    copy(pairs + v.pairs(i) * width + offset, v.s.head, rows + i * v.d, v.d);
  if (!columns) return;
  transpose(v.used, v.s.head, rows, v.d, columns, v.L);
  for (int64_t i = 0; i < v.s.head; i++)
    for (int64_t j = v.used; j < v.L; j++) columns[i * v.L + j] = 0;
}

void softmax(int64_t rows, int64_t L, const float* bias, float* scores) {
  for (int64_t r = 0; r < rows; r++, bias += L, scores += L) {
    vec most = splat(-INFINITY);
    for (int64_t i = 0; i < L; i += LANES) {
      const vec score = load(scores + i) + load(bias + i);
      store(scores + i, score);
      most = most > score ? most : score;
    }
    const float top = largest(most);
    vec total{};
    for (int64_t i = 0; i < L; i += LANES) {
      const vec weight = weigh(load(scores + i) - top);
      store(scores + i, weight);
      total += weight;
    }
    const float share = 1.0f / sum(total);
    for (int64_t i = 0; i < L; i += LANES) store(scores + i, load(scores + i) * share);
  }
}

void attend(const Shape& s, const Tree& t, const Plan& p, int64_t number, const Made& m, float* work,
            bool keep) {
  const int64_t L = padded(t.length), d = padded(s.head), K = s.Keys();
  float *bias = work, *keys = bias + L * L, *columns = keys + L * d, *values = columns + L * d,
        *asks = values + L * d, *mixed = asks + L * d, *weights = m.weights;
  for (int64_t state = 0; state < t.states; state++) {
    const View v(s, t, p, number, state);
    if (!v.count) continue;
    hide(v, bias);
    for (int64_t h = 0; h < s.heads; h++) {
      if (h % (s.heads / s.keys) == 0) {
        const int64_t offset = h / (s.heads / s.keys) * s.head;
        one_head(v, m.pairs, offset, keys, columns);
        one_head(v, m.pairs, K + offset, values, nullptr);
      }
      for (int64_t q = 0; q < v.count; q++)
        copy(m.asks + v.asks(q) * s.Asks() + h * s.head, s.head, asks + q * d, d);
      product(v.count, v.L, s.head, plain(asks, d), columns, v.L, weights, v.L);
      softmax(v.count, v.L, bias, weights);
      product(v.count, d, v.used, plain(weights, v.L), values, d, mixed, d);
      for (int64_t q = 0; q < v.count; q++)
        copy(mixed + q * d, s.head, m.mixed + v.mine[q] * s.Asks() + h * s.head, s.head);
      if (keep) weights += v.count * v.L;
    }
    for (int64_t q = 0; q < v.count; q++)
      for (int64_t i = s.heads * s.head; i < s.Asks(); i++) m.mixed[v.mine[q] * s.Asks() + i] = 0;
  }
}

void add_row(float* to, const float* from, int64_t width) {
  for (int64_t i = 0; i < width; i++) to[i] += from[i];
}

// Gradients of queries, keys and values, added to `dasks` and `dpairs`.
void attend_back(const Shape& s, const Tree& t, const Plan& p, int64_t number, const Made& m,
                 float* work, const float* dmixed, float* dasks, float* dpairs) {
  const int64_t L = padded(t.length), d = padded(s.head), K = s.Keys();
  float *dscores = work, *keys = dscores + L * L, *columns = keys + L * d, *values = columns + L * d,
        *asks = values + L * d, *gradient = asks + L * d, *dkeys = gradient + L * d,
        *dvalues = dkeys + L * d, *change = dvalues + L * d;
  const float* weights = m.weights;
  for (int64_t state = 0; state < t.states; state++) {
    const View v(s, t, p, number, state);
    if (!v.count) continue;
    const int64_t groups = s.heads / s.keys;
    for (int64_t h = 0; h < s.heads; h++, weights += v.count * v.L) {
      const int64_t offset = h / groups * s.head;
      if (h % groups == 0) {
        one_head(v, m.pairs, offset, keys, nullptr);
        one_head(v, m.pairs, K + offset, values, columns);
      }
      for (int64_t q = 0; q < v.count; q++) {
        copy(m.asks + v.asks(q) * s.Asks() + h * s.head, s.head, asks + q * d, d);
        copy(dmixed + v.mine[q] * s.Asks() + h * s.head, s.head, gradient + q * d, d);
      }
      product(v.count, v.L, s.head, plain(gradient, d), columns, v.L, dscores, v.L);
      for (int64_t q = 0; q < v.count; q++) {
        const float* weight = weights + q * v.L;
        float* dscore = dscores + q * v.L;
        vec along{};
        for (int64_t i = 0; i < v.L; i += LANES) along += load(weight + i) * load(dscore + i);
        const float mean = sum(along);
        for (int64_t i = 0; i < v.L; i += LANES)
          store(dscore + i, load(weight + i) * (load(dscore + i) - mean));
      }
      product(v.count, d, v.used, plain(dscores, v.L), keys, d, change, d);
      for (int64_t q = 0; q < v.count; q++)
        add_row(dasks + v.asks(q) * s.Asks() + h * s.head, change + q * d, s.head);
      product(v.used, d, v.count, turned(dscores, v.L), asks, d, dkeys, d, h % groups != 0);
      product(v.used, d, v.count, turned(weights, v.L), gradient, d, dvalues, d, h % groups != 0);
      if (h % groups != groups - 1) continue;
      for (int64_t i = 0; i < v.used; i++) {
        float* to = dpairs + v.pairs(i) * 2 * K + offset;
        add_row(to, dkeys + i * d, s.head);
        add_row(to + K, dvalues + i * d, s.head);
      }
    }
  }
}

// ---- weights ---------------------------------------------------------------------------------

void merge(const Place& to, const Projection& from) {
  if (from.a) {
    std::vector<float> a(from.rank * to.ld);
    for (int64_t r = 0; r < from.rank; r++)
      copy(from.a + r * to.inputs, to.inputs, a.data() + r * to.ld, to.ld);
    product(to.outputs, to.ld, from.rank, plain(from.b, from.rank), a.data(), to.ld, to.at, to.ld);
  }
  const float scaling = from.scaling, scale = to.scale;
  for (int64_t o = 0; o < to.outputs; o++) {
    float* __restrict row = to.at + o * to.ld;
    const float* __restrict weight = from.weight + o * to.inputs;
    for (int64_t i = 0; i < to.inputs; i++) {
      const float merged = from.a ? weight[i] + scaling * row[i] : weight[i];
      row[i] = merged * (to.gain ? to.gain[i] * scale : scale);
    }
  }
}

void adapter_gradients(const Place& at, const Projection& to, float* gradients) {
  if (!to.a) return;
  const float scaling = to.scaling * at.scale;
  for (int64_t o = 0; o < at.outputs; o++)
    for (int64_t i = 0; i < at.inputs; i++)
      at.at[o * at.ld + i] *= at.gain ? at.gain[i] * scaling : scaling;
  const int64_t wide = padded(to.rank);
  std::vector<float> a(at.ld * wide), b(at.outputs * wide), found(to.rank * at.ld);
  transpose(to.rank, at.inputs, to.a, at.inputs, a.data(), wide);
  product(at.outputs, wide, at.inputs, plain(at.at, at.ld), a.data(), wide, b.data(), wide);
  for (int64_t o = 0; o < at.outputs; o++)
    std::memcpy(gradients + to.b_at + o * to.rank, b.data() + o * wide, to.rank * sizeof(float));
  product(to.rank, at.ld, at.outputs, turned(to.b, to.rank), at.at, at.ld, found.data(), at.ld);
  for (int64_t r = 0; r < to.rank; r++)
    std::memcpy(gradients + to.a_at + r * at.inputs, found.data() + r * at.ld, at.inputs * sizeof(float));
}

// ---- the pass --------------------------------------------------------------------------------

void embed(const Shape& s, const Tree& t, int64_t node, float* to) {
  copy(t.embeddings + t.tokens[node] * s.width, s.width, to, s.Width());
}

// Copy the rows of wanted nodes from `begin` on.
void wanted_rows(const Shape& s, const Tree& t, int64_t begin, int64_t rows, const float* from,
                 float* to) {
  const int64_t W = s.Width();
  for (int64_t i = 0; i < rows; i++)
    std::memcpy(to + i * W, from + t.wanted[begin + i] * W, W * sizeof(float));
}

void forward(const Shape& s, const Tree& t, const Plan& p, const float* weights, float* kept,
             bool keep, const Scratch& w, float* hidden) {
  const int64_t W = s.Width(), A = s.Asks(), K2 = 2 * s.Keys(), I = s.Inner();
  for (int64_t n = 0; n < t.nodes; n++) embed(s, t, n, w.x + n * W);
  for (int64_t number = 0; number < s.layers; number++) {
    const Layer layer = layer_at(s, weights, number);
    const Sizes z = sizes(s, t, p, number);
    const bool first = number == 0, last = number == s.layers - 1;
    Made m;
    const int64_t size = make(s, z, kept, &m);
    if (keep) kept += size;
    // Queries, keys and values.
    const bool all_ask = first || !last;
    for (int64_t r = 0; r < z.known; r += ROWS) {
      const int64_t rows = std::min(ROWS, z.known - r);
      float* normed = m.normed + r * W;
      if (first)
        for (int64_t i = 0; i < rows; i++)
          embed(s, t, p.sample[r + i], normed + i * W);
      normalise(s, rows, first ? normed : w.x + r * W, normed, m.scale + r);
      product(rows, K2, W, plain(normed, W), layer.pair, K2, m.pairs + r * K2, K2);
      if (all_ask) product(rows, A, W, plain(normed, W), layer.query, A, m.asks + r * A, A);
      for (int64_t i = r; i < r + rows; i++) {
        const int64_t node = first ? p.sample[i] : i;
        rotate(s, t, m.pairs + i * K2, s.keys, node, 1);
        if (all_ask) rotate(s, t, m.asks + i * A, s.heads, node, 1);
      }
    }
    float* x = last ? w.wanted_x : w.x;
    if (last) wanted_rows(s, t, 0, t.wanted_count, w.x, x);
    if (!all_ask)
      for (int64_t r = 0; r < z.asking; r += ROWS) {
        const int64_t rows = std::min(ROWS, z.asking - r);
        wanted_rows(s, t, r, rows, m.normed, w.block);
        product(rows, A, W, plain(w.block, W), layer.query, A, m.asks + r * A, A);
        for (int64_t i = r; i < r + rows; i++) rotate(s, t, m.asks + i * A, s.heads, t.wanted[i], 1);
      }
    attend(s, t, p, number, m, w.state, keep);
    for (int64_t r = 0; r < z.after; r += ROWS) {
      const int64_t rows = std::min(ROWS, z.after - r);
      // Without a backward pass each block overwrites the one before.
      const int64_t at = keep ? r : 0;
      float *here = x + r * W, *normed = m.inner_normed + at * W, *inner = m.inner + at * 2 * I;
      product(rows, W, A, plain(m.mixed + r * A, A), layer.out, W, here, W, true);
      normalise(s, rows, here, normed, m.inner_scale + at);
      product(rows, 2 * I, W, plain(normed, W), layer.inner, 2 * I, inner, 2 * I);
      gate_rows(s, rows, inner, w.block);
      product(rows, W, I, plain(w.block, I), layer.down, W, here, W, true);
    }
  }
  // `kept` now points behind the last layer, to the final norm.
  const float* gain = weights + s.layers * 2 * one_way(s);
  float *normed = keep ? kept : w.wanted_x, *scale = keep ? kept + t.wanted_count * W : w.block;
  for (int64_t i = 0; i < t.wanted_count; i++) {
    normalise(s, 1, w.wanted_x + i * W, normed + i * W, keep ? scale + i : scale);
    for (int64_t j = 0; j < s.width; j++) hidden[i * s.width + j] = normed[i * W + j] * gain[j];
  }
}

int64_t lowest_adapted(const Shape& s, const Projection* projections) {
  int64_t which = 0;
  while (which < s.layers * PROJECTIONS && !projections[which].a) which++;
  return which / PROJECTIONS;
}

void backward(const Shape& s, const Tree& t, const Plan& p, const float* weights, const float* kept,
              const float* gradient, const Scratch& w, const Projection* projections,
              const Gains* gains, float* gradients) {
  const int64_t W = s.Width(), A = s.Asks(), K2 = 2 * s.Keys(), I = s.Inner();
  const Layer sums = layer_at(s, w.gradients, 0);
  float* at = const_cast<float*>(kept);
  std::vector<Made> made(s.layers);
  for (int64_t i = 0; i < s.layers; i++) at += make(s, sizes(s, t, p, i), at, &made[i]);
  const float* gain = weights + s.layers * 2 * one_way(s);
  std::memset(w.wanted_x, 0, t.wanted_count * W * sizeof(float));
  for (int64_t i = 0; i < t.wanted_count; i++) {
    std::memset(w.block, 0, W * sizeof(float));
    for (int64_t j = 0; j < s.width; j++) w.block[j] = gradient[i * s.width + j] * gain[j];
    normalise_back(s, 1, w.block, at + i * W, at + t.wanted_count * W + i, w.wanted_x + i * W);
  }
  const int64_t lowest = lowest_adapted(s, projections);
  for (int64_t number = s.layers - 1; number >= lowest; number--) {
    const Layer layer = layer_at(s, weights, number);
    const Sizes z = sizes(s, t, p, number);
    const Made& m = made[number];
    const bool first = number == 0, last = number == s.layers - 1, all_ask = first || !last,
               below = number > lowest;  // whether a lower layer is trained
    float* after = last ? w.wanted_x : w.dx;
    std::memset(w.gradients + one_way(s), 0, one_way(s) * sizeof(float));
    const Projection* changed = projections + number * PROJECTIONS;
    // If only one of key and value is trained, its half of the matrix.
    const int64_t pair = changed[KEY].a ? 0 : s.Keys(),
                  pairs = (changed[VALUE].a ? K2 : s.Keys()) - pair;
    const bool to_query = changed[QUERY].a, to_out = changed[OUT].a,
               to_inner = changed[GATE].a || changed[UP].a, to_down = changed[DOWN].a;
    std::memset(w.dasks, 0, z.asking * A * sizeof(float));
    std::memset(w.dpairs, 0, z.known * K2 * sizeof(float));
    for (int64_t r = 0; r < z.after; r += ROWS) {
      const int64_t rows = std::min(ROWS, z.after - r);
      float *dx = after + r * W, *dopen = w.block, *open = dopen + ROWS * I,
            *dinner = open + ROWS * I, *dnormed = dinner + ROWS * 2 * I;
      const float *normed = m.inner_normed + r * W, *mixed = m.mixed + r * A;
      product(rows, I, W, plain(dx, W), layer.down_t, I, dopen, I);
      gate_back(s, rows, m.inner + r * 2 * I, dopen, open, dinner);
      if (to_down) product(W, I, rows, turned(dx, W), open, I, sums.down_t, I, true);
      if (to_inner)
        product(2 * I, W, rows, turned(dinner, 2 * I), normed, W, sums.inner_t, W, true);
      product(rows, W, 2 * I, plain(dinner, 2 * I), layer.inner_t, W, dnormed, W);
      normalise_back(s, rows, dnormed, normed, m.inner_scale + r, dx);
      if (to_out) product(W, A, rows, turned(dx, W), mixed, A, sums.out_t, A, true);
      product(rows, A, W, plain(dx, W), layer.out_t, A, w.dmixed + r * A, A);
    }
    attend_back(s, t, p, number, m, w.state, w.dmixed, w.dasks, w.dpairs);
    if (last && !first) {
      std::memset(w.dx, 0, t.nodes * W * sizeof(float));
      for (int64_t i = 0; i < t.wanted_count; i++)
        std::memcpy(w.dx + t.wanted[i] * W, after + i * W, W * sizeof(float));
    }
    for (int64_t r = 0; r < z.known; r += ROWS) {
      const int64_t rows = std::min(ROWS, z.known - r);
      const float* normed = m.normed + r * W;
      float *dpairs = w.dpairs + r * K2, *dasks = w.dasks + r * A;
      for (int64_t i = 0; i < rows; i++) {
        const int64_t node = first ? p.sample[r + i] : r + i;
        rotate(s, t, dpairs + i * K2, s.keys, node, -1);
        if (all_ask) rotate(s, t, dasks + i * A, s.heads, node, -1);
      }
      if (pairs)
        product(pairs, W, rows, turned(dpairs + pair, K2), normed, W, sums.pair_t + pair * W, W, true);
      if (all_ask && to_query)
        product(A, W, rows, turned(dasks, A), normed, W, sums.query_t, W, true);
      if (!below) continue;  // lower layers and embeddings are frozen
      product(rows, W, K2, plain(dpairs, K2), layer.pair_t, W, w.block, W);
      if (all_ask) product(rows, W, A, plain(dasks, A), layer.query_t, W, w.block, W, true);
      normalise_back(s, rows, w.block, normed, m.scale + r, w.dx + r * W);
    }
    for (int64_t r = 0; r < z.asking && !all_ask; r += ROWS) {
      const int64_t rows = std::min(ROWS, z.asking - r);
      float *dasks = w.dasks + r * A, *dnormed = w.block + ROWS * W;
      for (int64_t i = 0; i < rows; i++) rotate(s, t, dasks + i * A, s.heads, t.wanted[r + i], -1);
      wanted_rows(s, t, r, rows, m.normed, w.block);
      if (to_query) product(A, W, rows, turned(dasks, A), w.block, W, sums.query_t, W, true);
      if (!below) continue;
      product(rows, W, A, plain(dasks, A), layer.query_t, W, dnormed, W);
      for (int64_t i = 0; i < rows; i++) {
        const int64_t node = t.wanted[r + i];
        normalise_back(s, 1, dnormed + i * W, w.block + i * W, m.scale + node, w.dx + node * W);
      }
    }
    for (int which = 0; which < PROJECTIONS; which++)
      adapter_gradients(place(s, sums, gains[number], which), changed[which], gradients);
  }
}

}  // namespace

// ---- interface: functions return 0, or 1 if out of memory --------------------------------------

extern "C" {

int64_t llama_weights(const Shape* s) { return s->layers * 2 * one_way(*s) + s->Width(); }

int llama_prepare(const Shape* s, const Projection* projections, const Gains* gains,
                  const float* last_gain, float* weights) try {
  std::memset(weights, 0, llama_weights(s) * sizeof(float));
  const int64_t W = s->Width(), A = s->Asks(), K2 = 2 * s->Keys(), I = s->Inner();
  for (int64_t number = 0; number < s->layers; number++) {
    const Layer layer = layer_at(*s, weights, number);
    for (int which = 0; which < PROJECTIONS; which++)
      merge(place(*s, layer, gains[number], which), projections[number * PROJECTIONS + which]);
    transpose(A, W, layer.query_t, W, layer.query, A);
    transpose(K2, W, layer.pair_t, W, layer.pair, K2);
    transpose(W, A, layer.out_t, A, layer.out, W);
    transpose(2 * I, W, layer.inner_t, W, layer.inner, 2 * I);
    transpose(W, I, layer.down_t, I, layer.down, W);
  }
  std::memcpy(weights + s->layers * 2 * one_way(*s), last_gain, s->width * sizeof(float));
  return 0;
} catch (const std::bad_alloc&) {
  return 1;
}

// Number of floats in `kept` and in `space`.
int llama_sizes(const Shape* s, const Tree* t, int keep, int64_t* found) try {
  const Plan p(*s, *t);
  found[0] = keep ? t->wanted_count * s->Width() + padded(t->wanted_count) : 0;
  for (int64_t i = 0; i < s->layers; i++) {
    const int64_t size = make(*s, sizes(*s, *t, p, i), nullptr, nullptr);
    found[0] = keep ? found[0] + size : std::max(found[0], size);
  }
  found[1] = scratch(*s, *t, p, keep, nullptr, nullptr);
  return 0;
} catch (const std::bad_alloc&) {
  return 1;
}

int llama_forward(const Shape* s, const Tree* t, const float* weights, float* kept, int keep,
                  float* space, float* hidden) try {
  const Plan p(*s, *t);
  Scratch w;
  scratch(*s, *t, p, keep, space, &w);
  forward(*s, *t, p, weights, kept, keep, w, hidden);
  return 0;
} catch (const std::bad_alloc&) {
  return 1;
}

int llama_backward(const Shape* s, const Tree* t, const float* weights, const float* kept,
                   const float* gradient, float* space, const Projection* projections,
                   const Gains* gains, float* gradients) try {
  const Plan p(*s, *t);
  Scratch w;
  scratch(*s, *t, p, true, space, &w);
  backward(*s, *t, p, weights, kept, gradient, w, projections, gains, gradients);
  return 0;
} catch (const std::bad_alloc&) {
  return 1;
}

}  // extern "C"
