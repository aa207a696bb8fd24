// What of a comparison is drawn.
#pragma once

#include "apps/compare/report.hpp"
#include "apps/plot/figure.hpp"

#include <string>
#include <vector>

namespace troupe {

/// Of each kind of curve one panel: the measure over epochs and over seconds of the clock, and the training loss over
/// epochs; one line a scheme, and around it the standard deviation over the seeds. `titles`: of the lines.
std::vector<PlotPanel> curve_panels(const std::vector<std::vector<MeanPoint>>& curves,
                                    const std::vector<std::string>& titles,
                                    Measure measure,
                                    const std::string& clock);

/// `curves`, and of each varied key whose values are all numbers `against-KEY`: the measure at the end against these
/// values, one line for each combination of the other keys; and `costs`, what the schemes have paid: the measure against
/// the staleness, the loss at the end against the bytes sent, and the training loss over seconds. None where nothing was
/// evaluated.
std::vector<Figure> figures_to_draw(const Comparison& comparison,
                                    FigureSize size = FigureSize::screen);

}  // namespace troupe
