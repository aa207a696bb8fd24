// The extension module: what users see is troupe/__init__.py and troupe/torch.py.
#include "apps/python/command.hpp"
#include "apps/python/data.hpp"
#include "apps/python/layer.hpp"
#include "apps/python/schemes.hpp"

NB_MODULE(_troupe, m) {
  nanobind::set_leak_warnings(
      false);  // a registered scheme keeps its class for as long as the process lives
  troupe::python::bind_command(m);
  troupe::python::bind_data(m);
  troupe::python::bind_layers(m);
  troupe::python::bind_schema(m);
  troupe::python::bind_schemes(m);
  troupe::python::bind_parts(m);
  troupe::python::bind_schedules(m);
  troupe::python::bind_exchanges(m);
  troupe::python::bind_decoupled(m);
  troupe::python::bind_extensions(m);
}
