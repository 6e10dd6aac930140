package containerfiles

// ContextFiles are the names of the files of Context that the text can take, sorted: all of them where that cannot be told.
func (s Source) ContextFiles() []string { return s.used() }
