// Package patch applies JSON, merge and strategic-merge patches and server-side
// apply to objects.
package patch
