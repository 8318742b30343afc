//! What people run: connect, run, resume, audit, pki, up, demo and doctor.
