// Package cmd is the command line: one file per subcommand. It is the only
// place that reads flags, environment and signals, and where the parts are wired
// together.
package cmd
