// Package typo says what a person probably meant who wrote a file: a word that is nearly right, and a tab where YAML
// takes only spaces. It is pure.
package typo
