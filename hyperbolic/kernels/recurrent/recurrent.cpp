// Whole sequences through Möbius RNNs and GRUs, a block of columns at a time: see passes.py.
#include <cstring>
#include <memory>

#include "denormals.h"
#include "recurrent_cells.h"

namespace recurrent {

template <class T> struct Problem {
    Sizes size;
    Settings<T> set;
    double c;
    const T *x;              // (streams, B, T, D)
    const int64_t *lengths;  // (streams, B), or none
    Weights<T> weights;      // of all cells

    int64_t blocks() const { return (size.batch + Row<T>::size - 1) / Row<T>::size; }

    Weights<T> of_cell(int64_t cell) const {
        const int64_t g = cell * size.gates, h = size.hidden;
        return {weights.in + g * h * size.d_in, weights.state + g * h * h, weights.bias + g * h, weights.bias_gap + g};
    }
};

// Columns of one cell: where they lie, and which position they are at in a step.
template <class T> struct Block {
    const Problem<T> &all;
    int64_t cell, stream, first, n;

    Block(const Problem<T> &problem, int64_t cell, int64_t block)
        : all(problem), cell(cell), stream(cell % problem.size.streams), first(block * Row<T>::size),
          n(std::min<int64_t>(Row<T>::size, problem.size.batch - first)) {}

    int64_t position(int64_t t) const { return cell < all.size.streams ? t : all.size.steps - 1 - t; }
    int64_t input(int64_t t) const {
        return ((stream * all.size.batch + first) * all.size.steps + position(t)) * all.size.d_in;
    }
    int64_t output(int64_t t) const {
        return ((cell * all.size.batch + first) * all.size.steps + position(t)) * all.size.hidden;
    }
    // The points of a step, of the unscaled ball, to out (cells, B, T, H); flat: room for them as rows.
    void write(const Row<T> *point, int64_t t, Row<T> *flat, T *out) const {
        const int64_t stride = all.size.steps * all.size.hidden;
        const T unit = all.set.unit;
        T *begin = out + output(t);
        lie(point, all.size.hidden, flat);
        each(flat, Row<T>::size, n, all.size.hidden, [=](int64_t j, int64_t at, int64_t count, const T *scaled) {
            T *to = begin + j * stride + at;
#pragma omp simd
            for (int64_t i = 0; i < count; i++) to[i] = unit * scaled[i];
        });
    }
    // 1 where the position at step t is inside of the sequence, else 0.
    Row<T> active(int64_t t) const {
        Row<T> inside;
        for (int64_t j = 0; j < Row<T>::size; j++)
            inside[j] = !all.lengths || j >= n || position(t) < all.lengths[stream * all.size.batch + first + j];
        return inside;
    }
};

// Writes out (cells, B, T, H), and unless there are none the states before each step, (cells, blocks, T, rows, LANES).
template <class T, template <class> class Cell> void forward(const Problem<T> &all, T *out, T *states, int threads) {
    const Sizes &size = all.size;
    const int64_t blocks = all.blocks(), tasks = size.cells * blocks, rows = size.hidden + Cell<T>::beside;
    const int64_t length = rows * Row<T>::size, shares = std::clamp<int64_t>(tasks, 1, threads);
#pragma omp parallel num_threads(shares) if (parallel : shares > 1)
    {
        const NoDenormals zeros;
        Inputs<T> in(size, all.set.limits, all.c);
        Cell<T> step(size, all.set);
        std::vector<Row<T>> state(rows);
#pragma omp for schedule(static)
        for (int64_t task = 0; task < tasks; task++) {
            const Block<T> block(all, task / blocks, task % blocks);
            const Weights<T> w = all.of_cell(block.cell);
            step.start(state.data());
            for (int64_t t = 0; t < size.steps; t++) {
                if (states) std::memcpy(states + (task * size.steps + t) * length, state[0].lane, length * sizeof(T));
                in.forward(all.x + block.input(t), block.n, w.in);
                const Row<T> *point = step.forward(state.data(), block.active(t), in, w);
                block.write(point, t, step.flat.data(), out);
                std::copy_n(step.next.begin(), rows, state.begin());
            }
        }
    }
}

// Results of the backward pass, zero before; x and scalars (of the unit and of c) unless there are none.
template <class T> struct Gradients {
    T *x, *in, *state, *bias, *bias_gap;
    double *scalars;

    // The sums of a cell are added.
    void add(const Totals<T> &from, const Sizes &size, int64_t cell) {
        const int64_t rows = size.outputs();
        add_panels(from.in.data(), rows, size.d_in, in + cell * rows * size.d_in);
        add_panels(from.state.data(), rows, size.hidden, state + cell * rows * size.hidden);
        for (int64_t r = 0; r < rows; r++) bias[cell * rows + r] += whole(from.bias[r]);
        for (int64_t g = 0; g < size.gates; g++) bias_gap[cell * size.gates + g] += whole(from.bias_gap[g]);
    }

  private:
    static T whole(const Row<T> &lanes) {
        double sum = 0;
        for (const T &number : lanes.lane) sum += number;
        return T(sum);
    }
    static void add_panels(const Row<T> *panel, int64_t rows, int64_t size, T *to) {
        each(panel, rows, rows, size, [=](int64_t r, int64_t at, int64_t count, const T *sums) {
            for (int64_t i = 0; i < count; i++) to[r * size + at + i] += sums[i];
        });
    }
};

// All steps of one cell's block, from the last to the first.
template <class T, class Cell>
void backward(const Block<T> &block, const Weights<T> &w, const T *states, const T *grad, T *g_x, double *scalars,
              Inputs<T> &in, Cell &step, Totals<T> &totals) {
    const Problem<T> &all = block.all;
    const int64_t hidden = all.size.hidden, steps = all.size.steps, rows = hidden + Cell::beside;
    std::vector<Row<T>> state(rows), g_state(rows), g_point(hidden);
    in.prepare(w.in);
    step.prepare(w.state);
    for (int64_t t = steps - 1; t >= 0; t--) {
        const Row<T> active = block.active(t);
        const T *x = all.x + block.input(t);
        std::memcpy(state[0].lane, states + t * rows * Row<T>::size, rows * sizeof(Row<T>));
        in.forward(x, block.n, w.in);
        step.forward(state.data(), active, in, w);
        read(grad + block.output(t), steps * hidden, block.n, hidden, step.flat.data(), g_point.data());
        for (Row<T> &of : g_point) LANE of[j] *= all.set.unit;
        step.backward(state.data(), active, in, w, g_point.data(), g_state.data(), totals, scalars[0]);
        in.backward(x, block.n, step.g_u, step.g_u_gap, totals, g_x ? g_x + block.input(t) : nullptr,
                    all.set.learned ? &scalars[1] : nullptr);
    }
}

// Each thread takes a share of the blocks; the sums of the shares are added in their order.
template <class T, template <class> class Cell>
void backward(const Problem<T> &all, const T *states, const T *grad, Gradients<T> to, int threads) {
    const Sizes &size = all.size;
    const int64_t blocks = all.blocks(), tasks = size.streams * blocks, shares = std::clamp<int64_t>(tasks, 1, threads);
    const int64_t length = size.steps * (size.hidden + Cell<T>::beside) * Row<T>::size;
    std::vector<std::unique_ptr<Totals<T>>> totals(shares * size.cells);
    std::vector<double> scalars(2 * shares);
#pragma omp parallel for num_threads(shares) schedule(static, 1) if (parallel : shares > 1)
    for (int64_t share = 0; share < shares; share++) {
        const NoDenormals zeros;
        Inputs<T> in(size, all.set.limits, all.c);
        Cell<T> step(size, all.set);
        for (int64_t task = share * tasks / shares; task < (share + 1) * tasks / shares; task++)
            for (int64_t cell = task / blocks; cell < size.cells; cell += size.streams) {  // in both directions
                std::unique_ptr<Totals<T>> &own = totals[share * size.cells + cell];
                if (!own) own = std::make_unique<Totals<T>>(size);
                const Block<T> block(all, cell, task % blocks);
                backward(block, all.of_cell(cell), states + (cell * blocks + task % blocks) * length, grad, to.x,
                         &scalars[2 * share], in, step, *own);
            }
    }
    for (int64_t i = 0; i < shares * size.cells; i++)
        if (totals[i]) to.add(*totals[i], size, i % size.cells);
    for (int64_t i = 0; to.scalars && i < 2 * shares; i++) to.scalars[i % 2] += scalars[i];
}

// sizes: streams, cells, B, T, D, H, gates, phi; numbers: c, largest norm of a point, whether it clips.
template <class T>
Problem<T> problem(const int64_t *sizes, const double *numbers, bool learned, const T *x, const int64_t *lengths,
                   const T *w_in, const T *w_state, const T *bias, const T *bias_gap) {
    const gyro::Limits<T> limits(numbers[1], numbers[2] != 0);
    const Settings<T> set{limits, T(1) / T(std::sqrt(numbers[0])), int(sizes[7]), learned};
    return {{sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], sizes[6]}, set, numbers[0], x, lengths,
            {w_in, w_state, bias, bias_gap}};
}

}  // namespace recurrent

#define EXPORT(T)                                                                                                      \
    extern "C" void forward_##T(const T *x, const int64_t *sizes, const double *numbers, const int64_t *lengths,       \
                            const T *w_in, const T *w_state, const T *bias, const T *bias_gap, T *out, T *states,      \
                            int threads) {                                                                             \
        const auto all = recurrent::problem(sizes, numbers, false, x, lengths, w_in, w_state, bias, bias_gap);         \
        (sizes[6] == 3 ? recurrent::forward<T, recurrent::Gru> : recurrent::forward<T, recurrent::Rnn>)(               \
            all, out, states, threads);                                                                                \
    }                                                                                                                  \
    extern "C" void backward_##T(const T *x, const int64_t *sizes, const double *numbers, const int64_t *lengths,      \
                             const T *w_in, const T *w_state, const T *bias, const T *bias_gap, const T *states,       \
                             const T *grad, T *g_x, T *g_in, T *g_state, T *g_bias, T *g_bias_gap, double *g_scalars,  \
                             int threads) {                                                                            \
        const auto all =                                                                                               \
            recurrent::problem(sizes, numbers, g_scalars != nullptr, x, lengths, w_in, w_state, bias, bias_gap);       \
        (sizes[6] == 3 ? recurrent::backward<T, recurrent::Gru> : recurrent::backward<T, recurrent::Rnn>)(             \
            all, states, grad, {g_x, g_in, g_state, g_bias, g_bias_gap, g_scalars}, threads);                          \
    }

EXPORT(float)
EXPORT(double)
