#include "backend/register.h"

#include "backend/bridge/bridge.h"
#include "backend/storage.h"

namespace musa {

void register_backend() {
  register_storage();
  register_bridge();
}

}  // namespace musa
