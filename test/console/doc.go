// Package console measures the console in a terminal: `make soak-console`.
package console
