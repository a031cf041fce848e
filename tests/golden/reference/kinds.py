"""What golden data there is: by name, how a case is drawn from a seed, how it is run, how many, how close."""

import cell_cases
import layer_cases
import loss_cases
import metric_cases
import optimizer_cases

KINDS = {
    "layers": (layer_cases.layer_case, layer_cases.run_layer, 192, 5e-6),
    "losses": (loss_cases.loss_case, loss_cases.run_loss, 140, 3e-6),
    "cells": (cell_cases.cell_case, cell_cases.run_cell, 100, 3e-6),
    # MXNet takes 1 - beta2 in float32, which is 5e-5 off.
    "optimizers": (optimizer_cases.optimizer_case, optimizer_cases.run_optimizer, 100, 5e-5),
    "schedules": (optimizer_cases.schedule_case, optimizer_cases.run_schedule, 60, 1e-7),
    "metrics": (metric_cases.metric_case, metric_cases.run_metric, 91, 3e-6),
}
"""name: (case of a seed, run(mx, case), number of seeds, tolerance)"""
