#include "lockstep/explain/drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/explain/provenance.h"
#include "lockstep/explain/report.h"
#include "lockstep/explain/simulate.h"
#include "lockstep/plan/hosts.h"

namespace lockstep {

namespace {

constexpr double kPlotWidth = 1000;
constexpr double kRight = 36;
constexpr double kTop = 92;
constexpr double kLane = 16;  // height of a bar
constexpr double kBarMin = 3;
constexpr const char* kInk = "#1f2933";
constexpr const char* kSoft = "#6b7785";
constexpr const char* kNeutral = "#56708a";
constexpr std::array<const char*, 16> kColours = {
    "#2f6fb5", "#e07b1a", "#3a9a4b", "#c8394b", "#8059b0", "#1c9aa3", "#b8941f", "#d45a9c",
    "#7b5a43", "#5c6bc0", "#7fa32b", "#a83279", "#3d7d6b", "#cc6b4e", "#4c4f8f", "#889096"};

// Which colour bytes have: of their chunk; if there is one chunk, of their slice or part; if all
// messages are the whole tensor, of the first rank that is in the sum.
enum class Shades { blocks, chunks, slices, parts };

class Drawing {
 public:
  Drawing(const Case& of, const Algorithm& algorithm, const Prices& prices)
      : whole_(of), of_(of), algorithm_(algorithm) {
    const Shape shape = shape_of(of, algorithm, 0);
    all_chunks_ = chunks_in(of.count, shape.chunk_count);
    const bool parts = has_parts(of.operation);
    if (all_chunks_ > kDrawnChunksMax) of_.count = kDrawnChunksMax * shape.chunk_count;
    chunk_count_ = shape.chunk_count;
    align_count_ = shape.align_count;
    Simulator simulator(shape_of(of_, algorithm, 0), of.size(), prices, true);
    for (int rank = 0; rank < of.ranks; ++rank) {
      plans_.push_back(algorithm.make(shape_of(of_, algorithm, rank)));
      simulator.add(plans_.back());
    }
    if (simulator.too_large()) {
      fail(Code::invalid_argument, "{} has too many moves to draw; take fewer ranks or bytes",
           describe(of));
    }
    simulation_ = simulator.run();
    provenance_ = follow(of_, plans_, simulation_);
    shades_ = parts ? Shades::parts : all_chunks_ > 1 ? Shades::chunks : Shades::slices;
    const bool reduces = of.operation == Operation::all_reduce || of.operation == Operation::reduce;
    const bool whole = std::ranges::all_of(
        simulation_.flights, [&](const Flight& flight) { return count_of(flight) == of_.count; });
    if (shades_ == Shades::slices && reduces && whole && !simulation_.flights.empty()) {
      shades_ = Shades::blocks;
    }
    rows_ = std::min(of.ranks, kDrawnRanksMax);
    elided_ = of.ranks > rows_;
    pitch_ = rows_ <= 4 ? 78 : rows_ <= 8 ? 62 : 46;
    hosts_ = of.hosts.empty() ? 1 : of.hosts.back() + 1;
    left_ = hosts_ > 1 && hosts_ < of.ranks ? 128 : 92;
    end_us_ = std::max(simulation_.end(), 1e-9);
  }

  std::string svg() {
    std::string body = rows() + barriers() + flights() + activities();
    const double legend_top = bottom() + 54;
    body += axis() + legend(legend_top);
    const double width = left_ + kPlotWidth + kRight;
    const double height = legend_top + 62;
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" "
               "width=\"{:.0f}\" height=\"{:.0f}\" font-family=\"Helvetica, Arial, 'DejaVu Sans', "
               "sans-serif\">\n",
               width, height, width, height) +
           fmt::format("<rect width=\"{:.0f}\" height=\"{:.0f}\" fill=\"#ffffff\"/>\n", width,
                       height) +
           title() + body + "</svg>\n";
  }

 private:
  double x(double us) const { return left_ + us / end_us_ * kPlotWidth; }
  double y(int rank) const { return kTop + pitch_ * (std::min(rank, rows_) + 0.5); }
  double bottom() const { return kTop + pitch_ * (rows_ + (elided_ ? 1 : 0)); }

  static std::string text(double at_x, double at_y, double size, const char* colour,
                          const std::string& anchor, const std::string& content,
                          const char* more = "") {
    return fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" fill=\"{}\" text-anchor=\"{}\"{}>{}"
        "</text>\n",
        at_x, at_y, size, colour, anchor, more, content);
  }

  std::string title() const {
    std::string heading = fmt::format("{} · {}", to_string(of_.operation), algorithm_.name);
    std::string svg = text(24, 36, 22, kInk, "start", heading, " font-weight=\"bold\"") +
                      text(24, 60, 14, kSoft, "start",
                           fmt::format("{} · predicted {}", describe(whole_), human_us(end_us_)));
    svg += text(left_ + kPlotWidth, 36, 14, kSoft, "end", std::string(algorithm_.why));
    if (all_chunks_ > kDrawnChunksMax) {
      svg += text(left_ + kPlotWidth, 60, 13, "#a4501a", "end",
                  fmt::format("drawn: the first {} of {} chunks, and their time", kDrawnChunksMax,
                              all_chunks_));
    }
    return svg;
  }

  std::string rows() const {
    std::string svg;
    const bool bands = hosts_ > 1 && hosts_ < of_.ranks;
    for (int rank = 0; bands && rank < rows_;) {
      const int host = of_.hosts[static_cast<std::size_t>(rank)];
      int end = rank;
      while (end < rows_ && of_.hosts[static_cast<std::size_t>(end)] == host) ++end;
      const double top = y(rank) - pitch_ / 2 + 3;
      const double height = (end - rank) * pitch_ - 6;
      svg += fmt::format(
          "<rect x=\"18\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"8\" "
          "fill=\"{}\"/>\n",
          top, left_ + kPlotWidth, height, host % 2 == 0 ? "#f3f6fa" : "#faf5ee");
      svg += text(
          0, 0, 12, kSoft, "middle", fmt::format("host {}", host),
          fmt::format(" transform=\"translate(36 {:.1f}) rotate(-90)\"", top + height / 2).c_str());
      rank = end;
    }
    for (int rank = 0; rank < rows_; ++rank) {
      svg += text(left_ - 14, y(rank) + 4.5, 13, kInk, "end", fmt::format("rank {}", rank));
      svg += fmt::format(
          "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#d5dbe2\"/>\n",
          left_, y(rank), left_ + kPlotWidth, y(rank));
    }
    if (elided_) {
      svg += text(left_ + 6, y(rows_) + 4.5, 13, kSoft, "start",
                  fmt::format("… ranks {}–{} are not drawn; arrows that end here go to or come "
                              "from them",
                              rows_, of_.ranks - 1));
    }
    return svg;
  }

  // A line through the rows of each host where its ranks go on together.
  std::string barriers() const {
    std::map<std::pair<int, std::int64_t>, std::pair<int, int>> lines;
    for (const Activity& activity : simulation_.activities) {
      if (activity.kind != StepKind::barrier || activity.rank >= rows_) continue;
      const int host = of_.hosts.empty() ? 0 : of_.hosts[static_cast<std::size_t>(activity.rank)];
      const auto at = static_cast<std::int64_t>(std::llround(x(activity.end_us) * 10));
      const auto [line, fresh] = lines.try_emplace({host, at}, activity.rank, activity.rank);
      line->second.first = std::min(line->second.first, activity.rank);
      line->second.second = std::max(line->second.second, activity.rank);
    }
    std::string svg;
    for (const auto& [at, ranks] : lines) {
      const double where = static_cast<double>(at.second) / 10;
      svg += fmt::format(
          "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
          "stroke-width=\"2\" stroke-dasharray=\"6 4\"/>\n",
          where, y(ranks.first) - pitch_ * 0.36, where, y(ranks.second) + pitch_ * 0.36, kInk);
    }
    return svg;
  }

  // The number of the chunk, slice or part; -1: of several slices, or nothing.
  std::int64_t shade_of(const Origin& origin, std::int64_t count) const {
    if (count == 0 || of_.operation == Operation::barrier) return -1;
    switch (shades_) {
      case Shades::chunks:
        return origin.begin / chunk_count_;
      case Shades::parts:
        if (of_.operation == Operation::all_to_all)
          return std::countr_zero(origin.ranks | 1ULL << 63);
        return count > of_.count ? -1 : origin.begin / std::max<std::int64_t>(of_.count, 1);
      case Shades::slices:
        break;
      case Shades::blocks:
        return std::countr_zero(origin.ranks | 1ULL << 63);
    }
    for (int rank = 0; rank < of_.ranks; ++rank) {
      const Range slice = slice_of({0, of_.count}, of_.ranks, rank, align_count_);
      const bool inside = origin.begin >= slice.begin && origin.begin < slice.end();
      if (inside) return origin.begin + count <= slice.end() ? rank : -1;
    }
    return -1;
  }
  const char* colour_of(std::int64_t shade) {
    several_ = several_ || shade < 0;
    if (shade < 0) return kNeutral;
    shades_seen_.insert(shade);
    return kColours[static_cast<std::size_t>(shade) % kColours.size()];
  }
  std::int64_t count_of(const Flight& flight) const {
    const Plan& plan = plans_[static_cast<std::size_t>(flight.from)];
    return plan.sources(plan.steps[flight.send_step])[0].range.count;
  }

  std::string flights() {
    std::int64_t longest = 1;
    for (const Flight& flight : simulation_.flights) longest = std::max(longest, count_of(flight));
    std::string svg;
    for (std::size_t i = 0; i < simulation_.flights.size(); ++i) {
      const Flight& flight = simulation_.flights[i];
      if (flight.from >= rows_ && flight.to >= rows_) continue;
      const std::int64_t count = count_of(flight);
      const char* colour = colour_of(shade_of(provenance_.flights[i], count));
      const double share = std::sqrt(static_cast<double>(count) / static_cast<double>(longest));
      svg += arrow(flight, colour, 1.1 + 1.5 * share);
      if (flight.from < rows_) {
        // The line is busy with it.
        svg += fmt::format(
            "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"3\" fill=\"{}\"/>\n",
            x(flight.begin_us),
            y(flight.from) + (flight.to > flight.from ? kLane / 2 : -kLane / 2 - 3),
            std::max(1.5, x(flight.left_us) - x(flight.begin_us)), colour);
      }
    }
    return svg;
  }

  // So many arrows that one sees through them.
  bool crowded() const { return simulation_.flights.size() > 400; }

  std::string arrow(const Flight& flight, const char* colour, double stroke) const {
    const bool down = flight.to > flight.from;
    const double gap = kLane / 2 + 1;
    const double x1 = x(flight.begin_us);
    const double y1 = y(flight.from) + (down ? gap : -gap);
    const double x2 = x(flight.landed_us);
    const double y2 = y(flight.to) + (down ? -gap : gap);
    const double length = std::max(1.0, std::hypot(x2 - x1, y2 - y1));
    const double ux = (x2 - x1) / length;
    const double uy = (y2 - y1) / length;
    constexpr double kHead = 8;
    constexpr double kHalf = 3.4;
    return fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
        "stroke-width=\"{:.1f}\" opacity=\"{}\"/>\n"
        "<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}L{:.1f} {:.1f}Z\" fill=\"{}\"/>\n",
        x1, y1, x2 - ux * kHead * 0.8, y2 - uy * kHead * 0.8, colour,
        crowded() ? stroke / 2 : stroke, crowded() ? 0.5 : 0.85, x2, y2,
        x2 - ux * kHead - uy * kHalf, y2 - uy * kHead + ux * kHalf, x2 - ux * kHead + uy * kHalf,
        y2 - uy * kHead - ux * kHalf, colour);
  }

  std::string activities() {
    std::string waits;
    std::string work;
    std::vector<double> labelled(static_cast<std::size_t>(rows_), -1e9);
    for (std::size_t i = 0; i < simulation_.activities.size(); ++i) {
      const Activity& activity = simulation_.activities[i];
      if (activity.rank >= rows_) continue;
      const double begin = x(activity.begin_us);
      const double width = x(activity.end_us) - begin;
      if (activity.kind != StepKind::copy && activity.kind != StepKind::reduce) {
        waits += fmt::format(
            "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"6\" rx=\"3\" "
            "fill=\"#c9d1da\"/>\n",
            begin, y(activity.rank) - 3, std::max(0.5, width));
        continue;
      }
      work += bar(i, begin, std::max(kBarMin, width));
      work += label(i, begin, std::max(kBarMin, width),
                    labelled[static_cast<std::size_t>(activity.rank)]);
    }
    return waits + work;
  }

  std::string bar(std::size_t index, double begin, double width) {
    const Activity& activity = simulation_.activities[index];
    const Plan& plan = plans_[static_cast<std::size_t>(activity.rank)];
    const std::int64_t count = plan.sources(plan.steps[activity.step])[0].range.count;
    const char* colour = colour_of(shade_of(provenance_.activities[index], count));
    const bool copies = activity.kind == StepKind::copy;
    return fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"2\" fill=\"{}\" "
        "stroke=\"{}\" stroke-width=\"1\"/>\n",
        begin, y(activity.rank) - kLane / 2, width, kLane, copies ? "#ffffff" : colour, colour);
  }

  // Whose contributions a sum holds, where there is room to say so.
  std::string label(std::size_t index, double begin, double width, double& labelled) const {
    const Activity& activity = simulation_.activities[index];
    const std::uint64_t bits = provenance_.activities[index].ranks;
    if (activity.kind != StepKind::reduce || of_.ranks > 64) return "";
    std::string content;
    if (std::popcount(bits) == of_.ranks) {
      content = "Σ all";
    } else {
      std::vector<int> ranks;
      for (int rank = 0; rank < of_.ranks; ++rank) {
        if ((bits >> rank & 1) != 0) ranks.push_back(rank);
      }
      std::string list = rank_list(ranks);
      content = "Σ " + list.substr(list.find(' ') + 1);
    }
    constexpr double kLetter = 5.6;
    const double long_as = kLetter * static_cast<double>(content.size() - 1);
    // Beside the heads of arrows, which come from the left.
    const double middle = width > long_as ? begin + width / 2 : begin + 3 + long_as / 2;
    if (middle - long_as / 2 < labelled + 4) return "";
    labelled = middle + long_as / 2;
    return text(middle, y(activity.rank) - kLane / 2 - 4, 10.5, kInk, "middle", content,
                " stroke=\"#ffffff\" stroke-width=\"3\" paint-order=\"stroke\"");
  }

  std::string axis() const {
    const double base = bottom() + 8;
    std::string svg = fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", left_,
        base, left_ + kPlotWidth, base, kSoft);
    const double rough = end_us_ / 10;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    double step = power;
    for (const double factor : {2.0, 5.0, 10.0}) {
      if (step < rough) step = factor * power;
    }
    const bool ms = end_us_ >= 10'000;
    for (int i = 0; i * step <= end_us_ * 1.0001; ++i) {
      const double at = x(i * step);
      svg += fmt::format(
          "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", at,
          base, at, base + 5, kSoft);
      svg += text(
          at, base + 19, 12, kSoft, "middle",
          fmt::format("{:.6g}{}", i * step / (ms ? 1000 : 1), i == 0 ? (ms ? " ms" : " µs") : ""));
    }
    return svg;
  }

  bool does(StepKind kind) const {
    for (const Plan& plan : plans_) {
      for (const Step& step : plan.steps) {
        if (step.kind == kind) return true;
      }
    }
    return false;
  }

  std::string legend(double top) const {
    double at = left_;
    std::string svg;
    const auto entry = [&](const std::string& symbol, double width, const std::string& name) {
      svg += fmt::format("<g transform=\"translate({:.1f} {:.1f})\">{}</g>\n", at, top, symbol);
      svg += text(at + width + 7, top + 4.5, 12.5, kInk, "start", name);
      at += width + 7 + 7.1 * static_cast<double>(name.size()) + 24;
    };
    if (does(StepKind::send)) {
      entry(fmt::format("<line x1=\"0\" y1=\"6\" x2=\"20\" y2=\"-3\" stroke=\"{0}\" "
                        "stroke-width=\"2\"/><path d=\"M26 -6L17.5 -6L21 1Z\" fill=\"{0}\"/>",
                        kNeutral),
            26, "message");
      entry(fmt::format("<rect y=\"-1.5\" width=\"22\" height=\"3\" fill=\"{}\"/>", kNeutral), 22,
            "its bytes leave");
    }
    if (does(StepKind::reduce)) {
      entry(
          fmt::format("<rect y=\"-8\" width=\"16\" height=\"16\" rx=\"2\" fill=\"{}\"/>", kNeutral),
          16, "reduce (whose)");
    }
    if (does(StepKind::copy)) {
      entry(fmt::format("<rect x=\"0.5\" y=\"-7.5\" width=\"15\" height=\"15\" rx=\"2\" "
                        "fill=\"#ffffff\" stroke=\"{}\"/>",
                        kNeutral),
            16, "copy");
    }
    entry("<rect y=\"-3\" width=\"22\" height=\"6\" rx=\"3\" fill=\"#c9d1da\"/>", 22, "wait");
    if (does(StepKind::barrier)) {
      entry(fmt::format("<line x1=\"3\" y1=\"-9\" x2=\"3\" y2=\"9\" stroke=\"{}\" "
                        "stroke-width=\"2\" stroke-dasharray=\"6 4\"/>",
                        kInk),
            6, "barrier");
    }
    return svg + shade_legend(top + 28);
  }

  std::string shade_legend(double top) const {
    if (shades_seen_.empty()) return "";
    const char* word = shades_ == Shades::blocks   ? "sum from rank"
                       : shades_ == Shades::chunks ? "chunk"
                       : shades_ == Shades::slices ? "slice"
                                                   : "part";
    if (of_.operation == Operation::all_to_all) word = "from rank";
    std::string svg = text(left_, top + 4.5, 12.5, kInk, "start", word);
    double at = left_ + 7.0 * static_cast<double>(std::string(word).size()) + 10;
    for (const std::int64_t shade : shades_seen_) {
      if (at > left_ + kPlotWidth - 60) {
        svg += text(at, top + 4.5, 12.5, kSoft, "start", "…");
        break;
      }
      svg += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"13\" height=\"13\" rx=\"3\" fill=\"{}\"/>\n", at,
          top - 6.5, kColours[static_cast<std::size_t>(shade) % kColours.size()]);
      const std::string number = std::to_string(shade);
      svg += text(at + 18, top + 4.5, 12.5, kInk, "start", number);
      at += 18 + 7.5 * static_cast<double>(number.size()) + 16;
    }
    if (several_) {
      svg += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"13\" height=\"13\" rx=\"3\" fill=\"{}\"/>\n", at,
          top - 6.5, kNeutral);
      svg += text(at + 18, top + 4.5, 12.5, kInk, "start", "several");
    }
    return svg;
  }

  const Case whole_;
  Case of_;  // as far as it is drawn
  const Algorithm& algorithm_;
  std::int64_t all_chunks_ = 0;
  std::int64_t chunk_count_ = 1;
  std::int64_t align_count_ = 1;
  std::vector<Plan> plans_;
  Simulation simulation_;
  Provenance provenance_;
  Shades shades_ = Shades::slices;
  int rows_ = 0;
  bool elided_ = false;
  double pitch_ = 0;
  int hosts_ = 1;
  double left_ = 0;
  double end_us_ = 0;
  std::set<std::int64_t> shades_seen_;
  bool several_ = false;
};

}  // namespace

std::string draw(const Case& of, const Algorithm& algorithm, const Prices& prices) {
  if (of.ranks > kFollowedRanksMax) {
    fail(Code::invalid_argument, "--svg draws up to {} ranks (of which it shows {})",
         kFollowedRanksMax, kDrawnRanksMax);
  }
  return Drawing(of, algorithm, prices).svg();
}

}  // namespace lockstep
