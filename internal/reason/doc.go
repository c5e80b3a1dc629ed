// Package reason holds the stable codes that say why: why a target is judged as it is,
// why a gate does not hold, why an order is refused. Scripts, alerts and the documents
// rely on them, so a code is never renamed.
package reason
