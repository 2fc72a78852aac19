#include "backend/graph/drawing.h"

#include <iomanip>
#include <sstream>

namespace musa::graph {

std::string drawing(const std::vector<Node>& nodes) {
  std::ostringstream text;
  text << "digraph musa_graph {\n  node [shape=box, fontname=\"monospace\"];\n";
  for (const Node& node : nodes) {
    text << "  n" << node.number << " [label=\"" << node.number << ": " << node.name
         << "\\nmusa:" << static_cast<int>(node.card);
    if (!node.label.empty()) {
      text << "  " << node.label;
    }
    if (node.device_ns >= 0) {
      text << "\\n" << std::fixed << std::setprecision(1) << static_cast<double>(node.device_ns) * 1e-3 << " us";
    }
    text << "\"];\n";
  }
  for (const Node& node : nodes) {
    for (const int before : node.dependencies) {
      text << "  n" << before << " -> n" << node.number << ";\n";
    }
  }
  text << "}\n";
  return text.str();
}

}  // namespace musa::graph
