// Package reason holds the stable codes that say why: the reason of a verdict, of
// a closed gate, or of a refused order. Scripts, alerts and documents rely on
// them, so a code is never renamed.
package reason
