package bundle

// RowsWriter writes rows.np layer by layer and can go on where an interrupted run stopped.
type RowsWriter struct{ g Geometry }
