//! Portico: accounts, data, files, realtime and functions in one program
