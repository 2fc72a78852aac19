// Card models: data files with one value a line, each with its trust and source.
#pragma once

#include <string>

#include "musart/musart_sim.h"

namespace musart {

struct CardModel {
  musaSimCard figures{};
  musaDeviceProp properties{};
};

// Reads the file of the model named by TORCH_MUSA_SIM_CARD and applies TORCH_MUSA_SIM_MEMORY.
musaError_t load_card_model(CardModel* model);

}  // namespace musart
