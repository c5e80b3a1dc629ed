// Package chart tests configs/chart and configs/kustomize. The parts of the chart that repeat a manifest of configs/ are made from
// it, and the kustomize bases are made by rendering the chart: `make golden` writes both.
package chart
