// Package edit is what both faces need to edit an object while others do, too.
//
// A user edits the object as it was (base) into another (mine). When they save it, it
// may have become a third (theirs): [Merge] does to theirs what was done from base to
// mine, field by field, so that only a field that both changed is a conflict. The
// console calls it; the page asks [Handler], which the API server and the server of
// foreign clusters mount on api.MergePath.
//
// [Read] reads an object as the user wrote it, and [Reasons] finds the places in that
// text of what the server has against it. Reading and writing the object is left to the
// faces.
package edit
