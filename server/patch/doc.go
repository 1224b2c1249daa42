// Package patch applies JSON patches, merge patches and strategic-merge patches
// to objects.
//
// A Patch is applied to the current object, again and again if other writers
// interfere (Apply), in one version of a kind, the one that the client spoke of.
// Server-side apply is parsed here (Intent) and merged by the server's field
// managers, since it is about who owns what.
package patch
