// Package console plays the console in real terminals (`make console`), and
// measures it (`make soak-console`).
package console
