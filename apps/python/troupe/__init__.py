"""Troupe: asynchronous training of neural networks by a company of actors.

run(), sim() and compare() train; Rule, Policy, Exchange, Optimizer, Codec, Schedule, Layer, Decoupled and Extension are base
classes of schemes of one's own, and rule, policy, optimizer, schedule, decoupled and extension make one of a function;
arrays() and samples() make data sets; troupe.torch makes networks of torch modules.
"""

from ._command import DataError, Departed, Diverged, Error, Interrupted, Lost, Text, UsageError
from .data import Dataset, arrays, samples
from .decorated import decoupled, extension, optimizer, policy, rule, schedule
from .results import Comparison, Run, Table
from .runs import Experiment, Finding, compare, conformance, explain, load, plan, replay, resume, run, sim
from .schemes import Codec, Decoupled, Exchange, Extension, Layer, Optimizer, Option, Policy, Rule, Schedule

__all__ = ["run", "sim", "compare", "plan", "explain", "conformance", "resume", "replay", "load", "Experiment", "Run",
           "Comparison", "Table", "Text", "Finding", "arrays", "samples", "Dataset", "Rule", "Policy", "Exchange",
           "Optimizer", "Codec", "Schedule", "Layer", "Decoupled", "Extension", "Option", "rule", "policy", "optimizer", "schedule",
           "decoupled", "extension", "Error", "UsageError", "DataError", "Diverged", "Lost", "Departed",
           "Interrupted"]
