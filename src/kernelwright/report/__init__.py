"""From a Profile to what people and agents read: the contract, report.md, comparisons, the published schemas."""
