//! The mesh that the suite drives: five real processes, a minted CA, a scripted model.
