// A graph as text for Graphviz.
#pragma once

#include <string>
#include <vector>

#include "backend/graph/node.h"

namespace musa::graph {

/// A digraph with one box for each node (operator, results, device time) and an edge for each dependency.
std::string drawing(const std::vector<Node>& nodes);

}  // namespace musa::graph
