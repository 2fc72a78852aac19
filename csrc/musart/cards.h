// Card models: data files with one value a line, each with its trust and source.
#pragma once

#include <string>

#include "musart/musart_sim.h"

namespace musart {

// What management tools show beside the figures of the cost model.
struct CardTraits {
  std::string ecc;                  // mode as mthreads-gmi words it; "N/A" for none
  double power_idle = 0;            // W
  double power_limit = 0;           // W
  double temperature_idle = 0;      // degrees Celsius
  double temperature_load = 0;      // at full load
  double bandwidth = 0;             // bytes per second, nominal
  double link_bandwidth = 0;        // bytes per second of one MTLink port
  int links = 0;                    // MTLink ports; 0: none
  int links_per_peer = 0;
  int link_version = 0;
  int pci_device_id = 0;
  int pci_generation = 0;
  int pci_lanes = 0;
};

struct CardModel {
  std::string file;  // absolute path
  musaSimCard figures{};
  musaDeviceProp properties{};
  CardTraits traits{};
  int64_t graph_launch_ns = 0;  // host time to submit one graph, whatever it holds
};

// Reads the file of the model named by TORCH_MUSA_SIM_CARD and applies TORCH_MUSA_SIM_MEMORY.
musaError_t load_card_model(CardModel* model);
// Reads a given file; `memory` replaces the card's own when positive.
musaError_t load_card_file(const std::string& path, int64_t memory, CardModel* model);

// Fills in UUID and PCI address, which depend on the place of the card in its host.
void identify_card(int physical, musaDeviceProp* properties);

}  // namespace musart
